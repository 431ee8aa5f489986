"use strict";
// Curves as SVG: text stays text, colours follow the theme.

const SVG = "http://www.w3.org/2000/svg";

function drawn(kind, attributes, text) {
  const found = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  if (text !== undefined) found.textContent = text;
  return found;
}

// Curves: [{name, look, faint, points: [[x, y], ...]}]. Options: log, low, high, xName, yName, y (as text), now, limit.
function chart(place, curves, options) {
  const width = Math.max(260, place.clientWidth || 320), height = Math.min(260, Math.max(190, width * 0.55));
  const left = 44, right = 12, top = 10, bottom = 40;
  const all = curves.flatMap((curve) => curve.points).filter(([x]) => !options.log || x > 0);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": options.label });
  if (all.length) {
    const xs = all.map(([x]) => x);
    const [first, last] = spread(Math.min(...xs), options.last ?? Math.max(...xs), options.log);
    const scale = options.log ? Math.log : (one) => one;
    const across = (x) => left + ((scale(x) - scale(first)) / (scale(last) - scale(first))) * (width - left - right);
    const ys = all.map(([, y]) => y);
    const [low, high] = spread(options.low ?? Math.min(...ys), options.high ?? Math.max(...ys));
    const down = (y) => height - bottom - ((y - low) / (high - low)) * (height - top - bottom);
    axes(svg, { left, right, top, bottom, width, height, across, down, first, last, low, high }, options);
    for (const curve of curves) {
      const inside = curve.points.filter(([x]) => !options.log || x > 0);
      const way = inside.map(([x, y], k) => `${k ? "L" : "M"}${across(x).toFixed(1)} ${down(y).toFixed(1)}`).join("");
      const faint = curve.faint ? " faint" : "";
      svg.append(drawn("path", { d: way, class: `curve ${curve.look}${faint}` }));
      if (inside.length === 1) {
        svg.append(drawn("circle", { cx: across(inside[0][0]), cy: down(inside[0][1]), r: 3, class: `dot ${curve.look}` }));
      }
    }
    if (options.now !== undefined && options.now >= first && options.now <= last) {
      svg.append(drawn("line", { x1: across(options.now), x2: across(options.now), y1: top, y2: height - bottom, class: "now" }));
    }
  }
  place.replaceChildren(svg, key(curves));
}

function spread(low, high, log) {
  if (high > low) return [low, high];
  return log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
}

function axes(svg, box, options) {
  const { left, right, top, bottom, width, height, across, down } = box;
  const marked = ticks(box.low, box.high, 4);
  // The limit has its number too; a mark that is too near to be read gives way.
  const heights = options.limit === undefined ? marked : [...marked.filter((y) => down(y) - down(options.limit) > 13), options.limit];
  for (const y of heights) {
    svg.append(drawn("line", { x1: left, x2: width - right, y1: down(y), y2: down(y), class: "axis" }));
    svg.append(drawn("text", { x: left - 6, y: down(y) + 4, "text-anchor": "end" }, options.y(y)));
  }
  const marks = options.log ? decades(box.first, box.last) : ticks(box.first, box.last, Math.floor(width / 90));
  for (const x of marks) {
    svg.append(drawn("text", { x: across(x), y: height - bottom + 16, "text-anchor": "middle" }, short(x)));
  }
  svg.append(drawn("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, options.xName));
  if (options.limit !== undefined) {
    const y = down(options.limit);
    svg.append(drawn("line", { x1: left, x2: width - right, y1: y, y2: y, class: "limit" }));
  }
}

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count), unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((one) => one * unit >= rough) * unit;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9 * step; at += step) found.push(at);
  return found;
}

function decades(first, last) {
  const found = [];
  for (let power = Math.ceil(Math.log10(first) - 1e-9); 10 ** power <= last * 1.0001; power += 1) found.push(10 ** power);
  const every = Math.ceil(found.length / 5);
  return found.filter((_, k) => k % every === 0);
}

function key(curves) {
  const list = document.createElement("ul");
  list.className = "key";
  for (const curve of curves) {
    const item = document.createElement("li"), sample = drawn("svg", { viewBox: "0 0 32 10", "aria-hidden": "true" });
    sample.append(drawn("path", { d: "M0 5H32", class: `curve ${curve.look}` }));
    item.append(sample, curve.name);
    list.append(item);
  }
  return list;
}
