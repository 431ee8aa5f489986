"use strict";
// What is said in words and tables.

function short(value) {
  if (value === 0) return "0";
  for (const [least, sign] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= least * 0.99995) return `${Number((value / least).toPrecision(3))}${sign}`;
  }
  return String(Number(value.toPrecision(3)));
}
const count = (value) => Math.round(value).toLocaleString("en");
const share = (value, digits = 1) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)}%`);
const bytes = (value) => `${short(value)}B`.replace(/^([\d.e+-]+)B$/, "$1 B").replace(/([kMG])B$/, " $1B");
const NAMES = {
  "private-walk": "private walk", "paper-walk": "the paper's walk", "plain-walk": "plain walk", gossip: "gossip",
  "gossip-matching": "gossip in pairs", "gossip-push": "gossip, push", fedavg: "FedAvg (a server)",
  central: "central (ceiling)",
};
const LOOKS = { "private-walk": "c0", "paper-walk": "c1", "plain-walk": "c2", gossip: "c3", fedavg: "c2", central: "c4" };
const OBSERVERS = {
  prior: "receiver, blind: told only that it was chosen",
  "return-time": "receiver with a clock: hops since the token was last there",
  "last-hop": "receiver: that, and the neighbour it came from",
  "first-sight": "a tenth of all nodes together: who of them held it first",
};

function element(kind, text, name) {
  const found = document.createElement(kind);
  if (text !== undefined) found.textContent = text;
  if (name) found.className = name;
  return found;
}

function table(heads, rows, caption) {
  const found = document.createElement("table");
  if (caption) found.append(element("caption", caption, "unseen"));
  const numeric = heads.map((_, k) => rows.every((row) => /^[-–<\d]/.test(String(row[k] ?? "–"))));
  if (heads.some((head) => head)) {
    const line = document.createElement("tr");
    heads.forEach((head, k) => {
      const cell = element("th", head, numeric[k] ? "number" : "");
      cell.scope = "col";
      line.append(cell);
    });
    const head = document.createElement("thead");
    head.append(line);
    found.append(head);
  }
  const body = document.createElement("tbody");
  for (const row of rows) {
    const line = document.createElement("tr");
    row.forEach((value, k) => {
      const cell = element(k ? "td" : "th", value ?? "–", numeric[k] ? "number" : "");
      if (!k) cell.scope = "row";
      line.append(cell);
    });
    body.append(line);
  }
  found.append(body);
  return found;
}

function facts(pairs) {
  const list = document.createElement("dl");
  for (const [name, value] of pairs) list.append(element("dt", name), element("dd", String(value ?? "–")));
  return list;
}

// The evaluation that was made last when so many updates were.
function pointAt(points, updates) {
  let found = points[0];
  for (const point of points) { if (point.update > updates) break; found = point; }
  return found;
}

function scoreWords(point) {
  if (!point) return "";
  return point.accuracy === null ? `loss ${point.loss.toFixed(3)} nats` : `accuracy ${share(point.accuracy)}`;
}

function sentence(at) {
  const { rows } = run;
  if (!rows.update.length) return run.about.what === "train" ? "The walk is being designed; it is fixed before anything is trained." : "";
  if (!at) return "Before the first update.";
  const updates = rows.update[at - 1], hops = rows.clock[at - 1];
  const points = run.points["private-walk"];
  const learnt = points ? `; ${scoreWords(pointAt(points, updates))} on held-out data` : "";
  const each = hops ? `, ${(hops / updates).toFixed(1)} hops each` : "";
  return `After ${count(updates)} updates${each}${learnt}.`;
}

function truthWords(row) {
  const { rows } = run;
  if (row < 0) return "The token has not been delivered yet.";
  const source = rows.source[row], to = rows.recipients[row];
  const sealed = to && to.length > 1 ? `sealed for ${to.length} nodes` : "sealed for one node";
  const way = rows.hops[row] >= 0 ? `after ${count(rows.hops[row])} hops` : "";
  const maker = source >= 0 ? `Made by node ${label(source)}, ${to && to.length ? sealed : "sealed"}, ` : "";
  const many = rows.tail[row] && rows.tail[row].length - 1 < rows.hops[row] ? ` The last ${rows.tail[row].length - 1} are drawn.` : "";
  return `Update ${count(rows.update[row])}: ${maker}opened by node ${label(rows.node[row])} ${way}.${many}`.replace(" .", ".");
}

function beliefWords(found) {
  if (!found) return "Posteriors are being computed; they come one observer after the other.";
  const { rows } = run, source = rows.source[found.row], most = found.weights[found.top];
  const nodes = Math.exp(found.entropy_nats);
  const right = source < 0 ? "" : found.top === source ? " It is right." : ` Wrong: it was ${label(source)}, ${found.before >= 1 ? `behind ${count(found.before)} other${found.before >= 1.5 ? "s" : ""}` : "as likely"}.`;
  return `Given: ${found.given}. Best guess: node ${label(found.top)} with ${share(most, 2)}.${right} `
    + `Node entropy ${found.entropy_nats.toFixed(3)} nats, as of ${nodes.toFixed(0)} equal suspects (blind: ${found.blind_entropy_nats.toFixed(3)}); ${found.how}.`;
}

function priceTable(at) {
  const { rows } = run, updates = at ? rows.update[at - 1] : 0, hops = at ? rows.clock[at - 1] : 0;
  const size = run.about.message_bytes ?? messageBytes();
  const lines = [["updates", count(updates)], ["hops, all together", count(hops)]];
  if (updates) lines.push(["hops of an update, measured", (hops / updates).toFixed(2)]);
  if (run.price) {
    const within = run.price.interval ? ` (95%: ${run.price.interval.map((one) => one.toFixed(2)).join(" to ")})` : "";
    lines.push([`hops of an update, predicted: ${run.price.how}`, run.price.hops.toFixed(2) + within]);
  }
  if (size) {
    lines.push(["bytes of a message", count(size)], ["bytes sent", bytes(hops * size)]);
    if (updates) lines.push(["bytes of an update", bytes((hops * size) / updates)]);
  }
  return table(["", "so far"], lines, "Price of the private walk so far");
}

function messageBytes() {
  const last = (run.points["private-walk"] || []).at(-1);
  return last && last.hops ? last.sent_bytes / last.hops : 0;
}

function besideTable() {
  const lines = [];
  for (const [name, points] of Object.entries(run.points)) {
    const last = points.at(-1), leak = run.result && run.result.anonymity[name], made = Math.max(1, last.update);
    const value = last.accuracy === null ? last.loss.toFixed(3) : share(last.accuracy);
    const named = leak && leak.hit_ratio !== null ? share(leak.hit_ratio, 2) : "–";
    lines.push([NAMES[name] || name, value, named, (last.hops / made).toFixed(1), bytes(last.sent_bytes / made)]);
  }
  const found = document.createDocumentFragment(), leak = run.result && run.result.anonymity["private-walk"];
  const score = Object.values(run.points).every((points) => points.at(-1).accuracy !== null) ? "accuracy" : "score";
  found.append(table(["", score, "maker named", "hops each", "bytes each"], lines, "The private walk beside other algorithms"));
  found.append(element("p", `Maker named: in how many deliveries the receiver's first guess is right${leak ? `; of the private walk ${leak.kind}` : ", known when the run has ended"}.`, "note"));
  return found;
}

function nodeWords(node, at) {
  const found = document.createDocumentFragment(), { rows } = run, known = [], unknown = [];
  const opened = openedBy(node).filter((row) => row < at);
  const neighbours = run.neighbours[node];
  known.push(`its ${neighbours.length} neighbours: ${neighbours.slice(0, 12).map(label).join(", ")}${neighbours.length > 12 ? ", …" : ""}`);
  if (rows.tail.length && run.about.what === "train") {
    let held = 0, complete = true;
    for (let row = 0; row < at; row += 1) {
      const way = rows.tail[row];
      complete &&= way.length > rows.hops[row];
      for (let hop = 1; hop < way.length; hop += 1) held += way[hop] === node;
    }
    known.push(`when it held the token: ${complete ? "" : "at least "}${count(held)} times so far, each time from which neighbour and to which`);
  }
  known.push(`what it opened, and trained on: ${opened.length ? `${count(opened.length)} updates` : "nothing yet"}`);
  const last = opened.filter((row) => rows.return_time[row] >= 0).slice(-3).reverse();
  for (const row of last) {
    const when = `, ${count(rows.return_time[row])} hops after the token was last here, from ${label(rows.last_hop[row])}`;
    const next = nextOf(row), to = next >= 0 && rows.recipients[next];
    known.push(`update ${count(rows.update[row])}${when}${to ? `; then sealed its own for ${listed(to)}` : ""}`);
  }
  unknown.push("who made what it opened: no more than the shades of the other map");
  if (rows.recipients.length) unknown.push("which of its own recipients opened what it sealed, and when");
  unknown.push("what it passes on: who made it, for whom it is, whether anybody opened it since");
  found.append(element("h3", "It knows"), listOf(known), element("h3", "It does not know"), listOf(unknown));
  return found;
}

function listOf(items) {
  const list = element("ul", undefined, "knows");
  for (const item of items) list.append(element("li", item));
  return list;
}

const listed = (nodes) => (nodes.length > 8 ? `${nodes.length} nodes` : nodes.map(label).join(", "));

// The delivery that follows on the same token.
function nextOf(row) {
  const { token } = run.rows;
  for (let next = row + 1; next < token.length; next += 1) if (token[next] === token[row]) return next;
  return -1;
}
