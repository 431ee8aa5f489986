"use strict";
// A network on a canvas. Edges and nodes are painted once and copied; only what moves is painted anew.

// Names of more nodes would lie on each other.
const MOST_NAMES = 40;
const shortName = (name) => (name.length > 14 ? `${name.slice(0, 13)}…` : name);

class GraphMap {
  constructor(canvas) {
    this.canvas = canvas;
    this.still = document.createElement("canvas");
    this.shades = null;
    this.size = 0;
  }

  colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(); }

  // Take over the size of the element; whether anything changed.
  fit() {
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(this.canvas.clientWidth * ratio), height = Math.round(this.canvas.clientHeight * ratio);
    if (this.canvas.width === width && this.canvas.height === height) return false;
    for (const one of [this.canvas, this.still]) { one.width = width; one.height = height; }
    this.ratio = ratio;
    return true;
  }

  // Paint edges and nodes; shades are from 0 to 1, below 0 for what cannot be.
  base(shades) {
    const { x, y, edges, nodes } = run.network;
    const { width, height } = this.still;
    const names = run.network.labels && nodes <= MOST_NAMES ? run.network.labels.map(shortName) : [];
    const margin = (names.length ? 34 : 18) * this.ratio, side = Math.min(width, height) - 2 * margin;
    this.x = x.map((one) => (width - side) / 2 + (one / 1000) * side);
    this.y = y.map((one) => (height - side) / 2 + (one / 1000) * side);
    this.radius = Math.max(2, Math.min(7, side / this.ratio / 8 / Math.sqrt(nodes))) * this.ratio;
    const pen = this.still.getContext("2d");
    pen.clearRect(0, 0, width, height);
    pen.strokeStyle = this.colour("edge");
    pen.lineWidth = Math.max(0.5, Math.min(1.2, 12 / Math.sqrt(nodes))) * this.ratio;
    pen.beginPath();
    for (let k = 0; k < edges.length; k += 2) {
      pen.moveTo(this.x[edges[k]], this.y[edges[k]]);
      pen.lineTo(this.x[edges[k + 1]], this.y[edges[k + 1]]);
    }
    pen.stroke();
    pen.fillStyle = this.colour("node");
    pen.strokeStyle = this.colour("node-line");
    pen.lineWidth = this.ratio;
    const shade = this.colour("shade");
    for (let node = 0; node < this.x.length; node += 1) {
      pen.beginPath();
      pen.arc(this.x[node], this.y[node], shades && shades[node] < 0 ? this.radius * 0.6 : this.radius, 0, 7);
      pen.globalAlpha = 1;
      pen.fillStyle = this.colourOfNode ||= this.colour("node");
      pen.fill();
      if (shades && shades[node] > 0) {
        pen.globalAlpha = shades[node];
        pen.fillStyle = shade;
        pen.fill();
        pen.globalAlpha = 1;
      }
      pen.stroke();
    }
    this.nameNodes(pen, names);
    this.painted = true;
  }

  // Write the name of each node below it, on a halo of the ground so that edges do not cross it.
  nameNodes(pen, names) {
    this.names = names;
    pen.font = `${12 * this.ratio}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    pen.lineJoin = "round";
    pen.lineWidth = 3 * this.ratio;
    pen.strokeStyle = this.colour("card");
    pen.fillStyle = this.colour("quiet");
    names.forEach((name, node) => {
      const half = pen.measureText(name).width / 2 + 2 * this.ratio;
      const x = Math.max(half, Math.min(this.still.width - half, this.x[node]));
      const y = this.y[node] + this.radius + 3 * this.ratio;
      pen.strokeText(name, x, y);
      pen.fillText(name, x, y);
    });
  }

  forget() { this.painted = false; this.colourOfNode = null; }

  begin() {
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.drawImage(this.still, 0, 0);
    return pen;
  }

  // A line from node to node that fades towards its beginning; `upto` of its hops are walked.
  trail(pen, way, upto) {
    const hops = way.length - 1, end = Math.min(hops, upto);
    pen.strokeStyle = this.colour("trail");
    pen.lineCap = "round";
    for (let hop = 0; hop < end; hop += 1) {
      const part = Math.min(1, end - hop);
      const age = (end - hop) / 24;
      pen.globalAlpha = Math.max(0.12, 1 - age);
      pen.lineWidth = Math.max(1.2, 3.6 - 2.4 * age) * this.ratio;
      pen.beginPath();
      pen.moveTo(this.x[way[hop]], this.y[way[hop]]);
      pen.lineTo(...this.between(way[hop], way[hop + 1], part));
      pen.stroke();
    }
    pen.globalAlpha = 1;
    const hop = Math.floor(end);
    return hop < hops ? this.between(way[hop], way[hop + 1], end - hop) : [this.x[way[hops]], this.y[way[hops]]];
  }

  between(from, to, part) {
    return [this.x[from] + (this.x[to] - this.x[from]) * part, this.y[from] + (this.y[to] - this.y[from]) * part];
  }

  dot(pen, [x, y], name) {
    const reach = Math.max(this.radius * 0.8, 4.2 * this.ratio);
    pen.fillStyle = this.colour(name);
    pen.globalAlpha = 0.25;
    pen.beginPath(); pen.arc(x, y, reach * 2, 0, 7); pen.fill();
    pen.globalAlpha = 1;
    pen.beginPath(); pen.arc(x, y, reach, 0, 7); pen.fill();
    pen.strokeStyle = this.colour("ground"); pen.lineWidth = 1.5 * this.ratio; pen.stroke();
  }

  // Marks differ by shape, not by colour alone.
  mark(pen, node, shape, name) {
    const x = this.x[node], y = this.y[node], reach = Math.max(this.radius * 1.35, 5.5 * this.ratio);
    pen.strokeStyle = this.colour(name);
    pen.fillStyle = this.colour(name);
    pen.lineWidth = 2.2 * this.ratio;
    pen.beginPath();
    if (shape === "diamond") {
      pen.moveTo(x, y - reach * 1.3); pen.lineTo(x + reach * 1.3, y); pen.lineTo(x, y + reach * 1.3);
      pen.lineTo(x - reach * 1.3, y); pen.closePath(); pen.fill();
      pen.strokeStyle = this.colour("ground"); pen.lineWidth = this.ratio; pen.stroke();
    } else if (shape === "square") {
      const half = reach * 1.25;
      pen.rect(x - half, y - half, 2 * half, 2 * half); pen.fill();
      pen.strokeStyle = this.colour("ground"); pen.lineWidth = this.ratio; pen.stroke();
    } else if (shape === "cross") {
      pen.moveTo(x - reach, y - reach); pen.lineTo(x + reach, y + reach);
      pen.moveTo(x + reach, y - reach); pen.lineTo(x - reach, y + reach); pen.stroke();
    } else {
      pen.arc(x, y, reach * (shape === "wide ring" ? 1.7 : 1.15), 0, 7); pen.stroke();
    }
  }

  // Which node is meant by a click, -1 for none.
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = (event.clientX - box.left) * this.ratio, y = (event.clientY - box.top) * this.ratio;
    let found = -1, least = (22 * this.ratio) ** 2;
    for (let node = 0; node < this.x.length; node += 1) {
      const away = (this.x[node] - x) ** 2 + (this.y[node] - y) ** 2;
      if (away < least) { least = away; found = node; }
    }
    return found;
  }
}
