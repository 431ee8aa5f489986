"use strict";
// Time, and what is shown at it.

const $ = (id) => document.getElementById(id);
const maps = { truth: new GraphMap($("truth")), belief: new GraphMap($("belief")) };
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
const view = { at: 0, part: 1, follows: true, plays: false, node: -1, observer: "last-hop", axis: "update", dirty: true, before: 0 };
let said = {};

function change() { view.dirty = true; }

function show(id, yes) { $(id).hidden = !yes; }

// Take the page's own documents, or follow the server's.
function begin() {
  const own = $("documents");
  if (own) {
    for (const one of JSON.parse(own.textContent)) take(one);
    arrive();
    view.at = run.reached;
  } else {
    const source = new EventSource("events");
    source.onmessage = (event) => { take(JSON.parse(event.data)); arrive(); };
    source.onerror = () => { $("mode").textContent = "not connected"; $("mode").classList.remove("live"); };
    source.onopen = change;
  }
  requestAnimationFrame(frame);
}

let arriving = false;
function arrive() {
  // Documents come in bursts: they are looked at once a frame.
  arriving = true;
}

function settle() {
  arriving = false;
  if (!run.about) return;
  said = {};
  if (view.follows) { view.at = run.reached; view.part = 1; }
  $("title").textContent = run.about.title;
  document.title = `${run.about.title} – veilwalk watch`;
  const chip = $("mode"), live = !$("documents") && !run.ended;
  chip.textContent = live ? "live" : run.ended ? "replay" : "replay, not finished";
  chip.classList.toggle("live", live);
  const walked = run.network && run.network.x.length > 0;
  show("time", run.rows.update.length > 0);
  show("maps", walked);
  show("node", walked);
  show("belief-figure", (run.about.observers || []).length > 0);
  show("gain", Object.keys(run.points).length > 0);
  show("hidden-chart-section", Object.keys(run.posteriors).length > 0);
  show("price", run.rows.update.length > 0);
  show("beside", Object.keys(run.points).length > 1);
  show("events", run.events.length > 0);
  show("facts", (run.about.facts || []).length > 0);
  show("map-note", Boolean(run.about.map));
  show("map-short", Boolean(run.about.map));
  show("seen-legend", run.about.what === "cluster");
  show("way-legend", run.about.what === "train");
  $("map-note").textContent = run.about.map || "";
  if (run.about.knows) $("truth-title").textContent = run.about.knows;
  if (run.about.facts) $("facts-body").replaceChildren(facts(run.about.facts));
  fillObservers();
  show("status", Boolean(run.status));
  if (run.status) $("status-body").replaceChildren(table(["", "now"], run.status.rows), ...run.status.notes.map((note) => element("p", note, "note")));
  change();
}

function fillObservers() {
  const wanted = run.about.observers || [], list = $("observer");
  if (list.options.length === wanted.length) return;
  list.replaceChildren(...wanted.map((name) => {
    const option = element("option", OBSERVERS[name] || name);
    option.value = name;
    return option;
  }));
  view.observer = wanted.includes(view.observer) ? view.observer : wanted.at(-1);
  list.value = view.observer;
}

function frame(now) {
  const passed = Math.min(0.1, (now - view.before) / 1000);
  view.before = now;
  if (arriving) settle();
  if (view.plays) advance(passed * Number($("speed").value));
  const resized = [maps.truth.fit(), maps.belief.fit()].some(Boolean);
  if (resized) { maps.truth.forget(); maps.belief.forget(); said = {}; }
  if (view.dirty || resized) { view.dirty = false; paint(); }
  requestAnimationFrame(frame);
}

// The token goes along its leg, then on to the next; who wants no motion sees one delivery after the other.
function advance(updates) {
  view.part += updates;
  if (calm.matches || $("speed").value > 5) {
    if (view.part < 1) return;
    view.at += Math.floor(view.part);
    view.part %= 1;
  } else if (view.part >= 1) {
    view.at += 1;
    view.part -= 1;
  }
  if (view.at >= run.reached) {
    view.at = run.reached;
    view.part = 1;
    view.follows = true;
    if (run.ended || $("documents")) play(false);
  }
  change();
}

function play(yes) {
  view.plays = yes;
  if (yes && view.at >= run.reached) { view.at = Math.min(1, run.reached); view.part = 0; }
  if (yes) view.follows = false;
  $("play").textContent = yes ? "Pause" : "Play";
  $("play").setAttribute("aria-pressed", String(yes));
  change();
}

function go(at) {
  view.at = Math.max(0, Math.min(run.reached, at));
  view.part = 1;
  view.follows = view.at === run.reached;
  change();
}

function paint() {
  if (!run.about) return;
  const slider = $("at");
  slider.max = run.reached;
  slider.value = view.at;
  const update = view.at ? run.rows.update[view.at - 1] : 0;
  slider.setAttribute("aria-valuetext", `update ${update}`);
  $("shown").textContent = `update ${count(update)} of ${count(run.reached ? run.rows.update[run.reached - 1] : 0)}`;
  once("sentence", `${view.at} ${run.reached} ${run.points["private-walk"]?.length}`, () => { $("sentence").textContent = sentence(view.at); });
  if (run.network && run.network.x.length) { paintTruth(); paintBelief(); }
  paintRest();
}

// Words and tables are set only when what they say has changed.
function once(name, state, set) {
  if (said[name] === state) return;
  said[name] = state;
  set();
}

function paintTruth() {
  const map = maps.truth, row = view.at - 1, { rows } = run;
  if (!map.canvas.width) return;
  if (!map.painted) map.base(null);
  const pen = map.begin();
  for (const event of run.events) {
    if (event.node !== undefined && event.at <= view.at && event.at > view.at - 20) map.mark(pen, event.node, "cross", "guess");
  }
  if (row >= 0) {
    for (const node of rows.seen[row] || []) map.mark(pen, node, "ring", "trail");
    for (const node of rows.recipients[row] || []) map.mark(pen, node, "ring", "recipient");
    if (rows.source[row] >= 0) map.mark(pen, rows.source[row], "diamond", "source");
    const way = rows.tail[row];
    const moving = view.plays && !calm.matches && Number($("speed").value) <= 5 ? Math.min(1, view.part) : 1;
    if (moving >= 1) map.mark(pen, rows.node[row], "square", "ink");
    if (way && way.length > 1) {
      const end = map.trail(pen, way, moving * (way.length - 1));
      map.dot(pen, end, "token");
    } else {
      map.dot(pen, [map.x[rows.node[row]], map.y[rows.node[row]]], "token");
    }
  }
  if (view.node >= 0) map.mark(pen, view.node, "wide ring", "ink");
  once("truth", String(row), () => { $("truth-words").textContent = truthWords(row); });
}

// Shade by how many times the even share a node has: a quarter is nothing, sixteen times is full.
function shadeOf(weight, nodes) {
  if (weight <= 0) return -1;
  return Math.max(0.03, Math.min(1, (Math.log2(weight * nodes) + 2) / 6));
}

function paintBelief() {
  if ($("belief-figure").hidden || !maps.belief.canvas.width) return;
  const map = maps.belief, found = lastPosterior(view.observer, view.at - 1);
  const state = `${view.observer} ${found ? found.row : -1}`;
  if (!map.painted || map.state !== state) {
    map.state = state;
    map.base(found ? found.weights.map((weight) => shadeOf(weight, found.weights.length)) : null);
  }
  const pen = map.begin();
  if (found) {
    map.mark(pen, run.rows.node[found.row], "square", "ink");
    if (run.rows.source[found.row] >= 0) map.mark(pen, run.rows.source[found.row], "diamond", "source");
    map.mark(pen, found.top, "wide ring", "guess");
  }
  if (view.node >= 0) map.mark(pen, view.node, "wide ring", "ink");
  once("belief", state, () => {
    $("belief-of").textContent = found ? `of update ${count(run.rows.update[found.row])}` : "";
    $("belief-words").textContent = beliefWords(found);
  });
}

function paintRest() {
  const known = `${view.at} ${run.reached} ${Boolean(run.price)}`;
  const steady = view.plays && Number($("speed").value) > 5 ? String(Math.floor(view.at / 25)) : known;
  once("price", steady, () => $("price-body").replaceChildren(priceTable(view.at)));
  once("beside", `${JSON.stringify(run.state)} ${Boolean(run.result)}`, () => $("beside-body").replaceChildren(besideTable()));
  once("gain", `${steady} ${view.axis} ${JSON.stringify(run.state)}`, gainChart);
  const told = Object.values(run.posteriors).reduce((sum, of) => sum + of.length, 0);
  once("hidden", `${steady} ${view.observer} ${told}`, hiddenChart);
  once("events", String(run.events.length), eventList);
  once("node", `${view.node} ${steady}`, () => {
    if (!run.network) return;
    $("node-title").textContent = view.node < 0 ? "A node" : `Node ${label(view.node)}`;
    $("node-body").replaceChildren(view.node < 0 ? element("p", "What a single node knows, and what it does not.", "note") : nodeWords(view.node, view.at));
  });
}

function gainChart() {
  const names = Object.keys(run.points);
  if (!names.length) return;
  const score = names.every((name) => run.points[name].every((point) => point.accuracy !== null)) ? "accuracy" : "loss";
  $("gain-title").textContent = `${score === "accuracy" ? "Accuracy" : "Loss"} on held-out data`;
  const curves = names.map((name) => ({
    name: NAMES[name] || name, look: LOOKS[name] || "c4",
    points: run.points[name].map((point) => [point[view.axis], point[score]]),
  }));
  const update = view.at ? run.rows.update[view.at - 1] : 0, hops = view.at ? run.rows.clock[view.at - 1] : 0;
  const now = { update, hops, sent_bytes: hops * (run.about.message_bytes ?? messageBytes()) }[view.axis];
  const axisNames = { update: "updates", hops: "hops, all together", sent_bytes: "bytes sent, all together" };
  chart($("gain-chart"), curves, {
    log: view.axis !== "update", low: score === "accuracy" ? 0 : undefined, high: score === "accuracy" ? 1 : undefined,
    xName: axisNames[view.axis], y: (one) => (score === "accuracy" ? share(one, 0) : short(one)), now,
    label: `${score} against ${axisNames[view.axis]}: ${names.map((name) => `${NAMES[name] || name} ${scoreWords(run.points[name].at(-1))}`).join(", ")}`,
  });
}

function hiddenChart() {
  const names = Object.keys(run.posteriors);
  if (!names.length) return;
  const looks = { prior: "c4", "return-time": "c3", "last-hop": "c0", "first-sight": "c2" };
  const curves = names.map((name) => ({
    name: name === "first-sight" ? "a tenth together" : { prior: "receiver, blind", "return-time": "with a clock", "last-hop": "clock and last hop" }[name] || name,
    look: looks[name] || "c4", faint: name !== view.observer,
    points: run.posteriors[name].filter((one) => one.row < run.reached).map((one) => [run.rows.update[one.row], one.entropy_nats]),
  }));
  const most = Math.log(run.network.nodes);
  chart($("hidden-chart"), curves, {
    low: 0, high: most, limit: most, last: run.rows.update[run.reached - 1], xName: "updates", y: (one) => one.toFixed(1),
    now: view.at ? run.rows.update[view.at - 1] : 0, label: "Node entropy in nats against updates, for each observer",
  });
}

function eventList() {
  $("events-body").replaceChildren(...run.events.slice(-200).reverse().map((event) => {
    const item = document.createElement("li");
    if (event.at > 0) {
      const button = element("button", `at ${event.at}`);
      button.type = "button";
      button.addEventListener("click", () => go(event.at));
      item.append(button);
    }
    item.append(`${event.what}: ${event.text}`);
    return item;
  }));
}

function choose(node) {
  if (node < 0) return;
  view.node = node;
  $("node-name").value = label(node);
  change();
}

$("at").addEventListener("input", (event) => { play(false); go(Number(event.target.value)); });
$("play").addEventListener("click", () => play(!view.plays));
$("latest").addEventListener("click", () => { play(false); go(run.reached); });
$("time").addEventListener("submit", (event) => event.preventDefault());
$("observer").addEventListener("change", (event) => { view.observer = event.target.value; change(); });
$("node-name").addEventListener("change", (event) => choose(nodeNamed(event.target.value)));
for (const radio of document.querySelectorAll('input[name="axis"]')) {
  radio.addEventListener("change", () => { view.axis = radio.value; change(); });
}
for (const map of Object.values(maps)) {
  map.canvas.addEventListener("click", (event) => choose(map.at(event)));
  map.canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    choose((view.node + step + run.network.nodes) % run.network.nodes);
  });
}
window.addEventListener("resize", () => { said = {}; change(); });
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  maps.truth.forget();
  maps.belief.forget();
  change();
});
begin();
