"use strict";
// All that the page has been told. Documents are taken in order; what each kind means is said in _documents.py.

const run = {
  about: null, network: null, points: {}, posteriors: {}, events: [], state: null, result: null, price: null,
  status: null, reached: 0, ended: false,
  rows: { update: [], token: [], source: [], node: [], last_hop: [], hops: [], return_time: [], clock: [], tail: [],
    recipients: [], seen: [] },
};

function take(document) {
  switch (document.kind) {
    case "about": run.about = document; break;
    case "network": run.network = document; run.neighbours = neighboursOf(document); break;
    case "deliveries":
      for (const name of Object.keys(run.rows)) {
        for (const value of document[name] || []) run.rows[name].push(value);
      }
      run.byNode = null;
      break;
    case "points": run.points[document.algorithm] = document.points; break;
    case "posterior": {
      const of = run.posteriors[document.observer] ||= [];
      of.push(document);
      if (of.length > 1 && of[of.length - 2].row > document.row) of.sort((one, other) => one.row - other.row);
      break;
    }
    case "event":
      run.events.push(document);
      break;
    case "state": run.state = document; run.ended = document.finished; break;
    default: run[document.kind] = document;
  }
  run.reached = reached();
}

// How many deliveries have happened: a simulation has walked all of them before it trains along the way.
function reached() {
  const known = run.rows.update.length;
  const stage = run.state && run.state.stages && run.state.stages["private-walk"];
  if (!run.about || run.about.what !== "train") return known;
  if (!stage) return 0;
  let low = 0, high = known;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (run.rows.update[middle] <= stage.done) low = middle + 1; else high = middle;
  }
  return low;
}

function neighboursOf(network) {
  const found = Array.from({ length: network.nodes }, () => []);
  for (let k = 0; k < network.edges.length; k += 2) {
    found[network.edges[k]].push(network.edges[k + 1]);
    found[network.edges[k + 1]].push(network.edges[k]);
  }
  for (const list of found) list.sort((one, other) => one - other);
  return found;
}

// The rows that a node opened, ascending.
function openedBy(node) {
  if (!run.byNode) {
    run.byNode = new Map();
    run.rows.node.forEach((each, row) => {
      if (!run.byNode.has(each)) run.byNode.set(each, []);
      run.byNode.get(each).push(row);
    });
  }
  return run.byNode.get(node) || [];
}

// What an observer said last, up to a row.
function lastPosterior(observer, row) {
  const of = run.posteriors[observer] || [];
  let found = null;
  for (const one of of) { if (one.row > row) break; found = one; }
  return found;
}

function label(node) {
  const labels = run.network && run.network.labels;
  return labels ? labels[node] : String(node);
}

function nodeNamed(text) {
  const labels = run.network.labels;
  const found = labels ? labels.indexOf(text.trim()) : /^\d+$/.test(text.trim()) ? Number(text) : -1;
  return found >= 0 && found < run.network.nodes ? found : -1;
}
