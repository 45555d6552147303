// Elements, numbers and figures. What comes from users becomes text and is never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

export function node(tag, about = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(about)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function shape(tag, about = {}, colour = {}) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(about)) made.setAttribute(name, value);
  Object.assign(made.style, colour);
  return made;
}

export const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

export function number(value, digits = 3) {
  if (!known(value)) return "none";
  if (Number.isInteger(value)) return value.toLocaleString();
  return value.toLocaleString(undefined, { maximumSignificantDigits: digits });
}

export function percent(value) {
  if (!known(value)) return "none";
  const size = 100 * value;
  return `${size.toLocaleString(undefined, { maximumFractionDigits: size < 10 ? 1 : 0 })}%`;
}

// A value to as many decimals as its reach says something about.
export function around(value, reach) {
  if (!known(value)) return "none";
  if (!known(reach) || reach <= 0) return number(value);
  const places = Math.min(12, Math.max(0, 1 - Math.floor(Math.log10(reach))));
  const about = { minimumFractionDigits: places, maximumFractionDigits: places };
  return `${value.toLocaleString(undefined, about)} ± ${reach.toLocaleString(undefined, about)}`;
}

export function lasting(seconds) {
  if (!known(seconds)) return "none";
  if (seconds < 1) return `${Math.round(1000 * seconds)} ms`;
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size) return `${number(Math.round((10 * seconds) / size) / 10)} ${unit}`;
  }
  return `${Math.round(seconds)} s`;
}

const clock = (at, seconds = false) =>
  at.toLocaleTimeString([], {
    hour: "2-digit", minute: "2-digit", second: seconds ? "2-digit" : undefined, hourCycle: "h23",
  });
const day = (at) => at.toLocaleDateString([], { day: "numeric", month: "short" });

export function moment(at, seconds = true) {
  const today = at.toDateString() === new Date().toDateString();
  return today ? clock(at, seconds) : `${day(at)} ${clock(at, seconds)}`;
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000];

function timeTicks(begin, end, most) {
  const step = STEPS.find((size) => (end - begin) / (1000 * size) <= most) ?? STEPS.at(-1);
  const midnight = new Date(begin);
  midnight.setHours(0, 0, 0, 0);
  const ticks = [];
  let at = midnight.getTime() + Math.ceil((begin - midnight) / (1000 * step)) * 1000 * step;
  for (; at <= end; at += 1000 * step) {
    const when = new Date(at);
    const dated = step >= 86400 || clock(when) === "00:00";
    ticks.push([at, dated ? day(when) : clock(when, step < 60)]);
  }
  return ticks;
}

export function valueTicks(low, high, most = 4) {
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((size) => size * power).find((size) => size >= rough);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n += 1) {
    ticks.push(Number((n * step).toPrecision(12)));
  }
  return ticks;
}

// One figure over time. Its legend says the values at the cursor, which the pointer or the arrow
// keys move; without either it is at the last part that has any.
export class Figure {
  constructor(title, unit) {
    this.data = null;
    this.cursor = null;
    this.legend = node("ul", { class: "legend" });
    this.plot = node("div", {
      class: "plot", tabindex: "0", role: "slider", "aria-orientation": "horizontal",
      "aria-label": `${title}, over time: arrow keys move through it`,
    });
    this.rows = node("div", { class: "scroll", tabindex: "0", role: "region",
      "aria-label": `${title} as a table` });
    this.table = node("details", { ontoggle: () => this.tabulate() },
      node("summary", {}, "As a table"), this.rows);
    this.none = node("p", { class: "note" });
    this.element = node("figure", { class: "card" },
      node("figcaption", {}, node("h2", {}, title), node("p", { class: "note" }, unit)),
      this.legend, this.none, this.plot, this.table);
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerdown", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", () => this.move(null));
    this.plot.addEventListener("blur", () => this.move(null));
    this.plot.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  // data: {ends: [ms], width: ms, counts, series: [{name, colour, values, low, high, show}],
  //        stacked, low, high, show, marks: [{at: ms, words}]}; or text that says why there is none.
  set(data) {
    const empty = typeof data === "string";
    // One point is no line: it is said.
    const single = !empty && !data.stacked && data.series.every((one) => one.values.filter(known).length < 2);
    this.none.textContent = empty ? data : single ? "There is one value so far; a line needs two." : "";
    this.none.hidden = !empty && !single;
    for (const part of [this.plot, this.table, this.legend]) part.hidden = empty;
    this.plot.hidden = empty || single;
    this.data = empty ? null : data;
    if (!empty && this.cursor !== null && this.cursor >= data.ends.length) this.cursor = null;
    this.draw();
    this.tabulate();
  }

  at() {
    if (this.cursor !== null) return this.cursor;
    const { ends, series } = this.data;
    for (let n = ends.length - 1; n > 0; n -= 1) {
      if (series.some((one) => known(one.values[n]))) return n;
    }
    return 0;
  }

  move(cursor) {
    if (cursor === this.cursor || this.data === null) return;
    this.cursor = cursor;
    this.draw();
  }

  point(event) {
    if (this.data === null || !this.frame) return;
    const { left, right } = this.frame;
    const share = (event.clientX - this.plot.getBoundingClientRect().left - left) / (right - left);
    const last = this.data.ends.length - 1;
    this.move(Math.max(0, Math.min(last, Math.floor(share * (last + 1)))));
  }

  key(event) {
    if (this.data === null) return;
    const last = this.data.ends.length - 1;
    const now = this.at();
    const to = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1,
      Home: 0, End: last, PageUp: now + 10, PageDown: now - 10 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.move(Math.max(0, Math.min(last, to)));
  }

  describe() {
    const { ends, width, counts, series, stacked, marks } = this.data;
    const n = this.at();
    const when = `${moment(new Date(ends[n] - width), width < 60000)} to ` +
      `${moment(new Date(ends[n]), width < 60000)}`;
    const made = `${number(counts[n])} decision${counts[n] === 1 ? "" : "s"}`;
    const words = series.map((one) => `${one.name} ${one.show(n)}`);
    const changes = (marks ?? []).filter(({ at }) => at > ends[n] - width && at <= ends[n]).map((one) => one.words);
    this.plot.setAttribute("aria-valuemin", 0);
    this.plot.setAttribute("aria-valuemax", ends.length - 1);
    this.plot.setAttribute("aria-valuenow", n);
    this.plot.setAttribute("aria-valuetext", `${when}, ${made}: ${[...words, ...changes].join(", ")}`);
    this.legend.replaceChildren(
      ...series.map((one) => {
        const mark = node("i", { class: stacked ? "" : "line" });
        mark.style.background = one.colour;
        return node("li", {}, mark, node("span", {}, `${one.name} `, node("b", {}, one.show(n))));
      }),
      node("li", { class: "when" }, [`${when}, ${made}`, ...changes].join("; ")),
    );
  }

  tabulate() {
    if (!this.table.open || this.data === null) return;
    const { ends, width, counts, series } = this.data;
    const titles = ["until", "decisions", ...series.map((one) => one.name)];
    const rows = ends.map((end, n) => node("tr", {},
      node("td", {}, moment(new Date(end), width < 60000)), node("td", {}, number(counts[n])),
      ...series.map((one) => node("td", {}, one.show(n)))));
    const head = titles.map((title) => node("th", { scope: "col" }, title));
    this.rows.replaceChildren(node("table", {},
      node("thead", {}, node("tr", {}, ...head)), node("tbody", {}, ...rows.reverse())));
  }

  draw() {
    if (this.data === null) return;
    this.describe();
    if (this.plot.clientWidth === 0) return;
    const { ends, width, series, stacked, low, high, show, marks } = this.data;
    const wide = this.plot.clientWidth, tall = wide < 420 ? 170 : 210;
    const ticks = valueTicks(low, high);
    const room = 12 + Math.max(...ticks.map((tick) => 6.6 * show(tick).length));
    const [left, right, top, bottom] = [room, wide - 8, 8, tall - 24];
    this.frame = { left, right };
    const begin = ends[0] - width, end = ends.at(-1);
    const x = (at) => left + ((at - begin) / (end - begin)) * (right - left);
    const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - top);
    const canvas = shape("svg", { viewBox: `0 0 ${wide} ${tall}`, height: tall, "aria-hidden": true });
    const text = (words, about) => {
      const made = shape("text", about);
      made.textContent = words;
      canvas.append(made);
    };
    for (const tick of ticks) {
      canvas.append(shape("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }));
      text(show(tick), { x: left - 6, y: y(tick) + 4, "text-anchor": "end" });
    }
    for (const [at, label] of timeTicks(begin, end, Math.max(2, (right - left) / 72))) {
      const near = x(at) > right - 18 ? "end" : x(at) < left + 18 ? "start" : "middle";
      text(label, { x: x(at), y: tall - 6, "text-anchor": near });
      canvas.append(shape("line", { class: "axis", x1: x(at), x2: x(at), y1: bottom, y2: bottom + 4 }));
    }
    canvas.append(shape("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
    const inside = shape("svg", { x: left, y: top - 4, width: right - left,
      height: bottom - top + 4, viewBox: `${left} ${top - 4} ${right - left} ${bottom - top + 4}` });
    canvas.append(inside);
    if (stacked) stack(inside, this.data, x, y);
    else for (const one of series) line(inside, one, ends, width, x, y);
    for (const mark of marks ?? []) {
      if (mark.at < begin || mark.at > end) continue;
      const at = x(mark.at);
      canvas.append(shape("line", { class: "mark", x1: at, x2: at, y1: top, y2: bottom }),
        shape("polygon", { class: "mark", points: `${at - 4},${top - 6} ${at + 4},${top - 6} ${at},${top + 1}` }));
    }
    const n = this.at();
    if (this.cursor !== null) {
      const at = x(ends[n] - width / 2);
      canvas.append(shape("line", { class: "cursor", x1: at, x2: at, y1: top, y2: bottom }));
    }
    this.plot.replaceChildren(canvas);
  }
}

function runs(values) {
  const found = [];
  values.forEach((value, n) => {
    if (!known(value)) return;
    if (n > 0 && known(values[n - 1])) found.at(-1).push(n);
    else found.push([n]);
  });
  return found;
}

function line(canvas, one, ends, width, x, y) {
  const middle = (n) => x(ends[n] - width / 2);
  for (const run of one.low ? runs(one.low) : []) {
    const around = run.length > 1 ? (n) => [middle(n)] : (n) => [middle(n) - 2, middle(n) + 2];
    const over = run.flatMap((n) => around(n).map((at) => `${at},${y(one.high[n])}`));
    const under = run.flatMap((n) => around(n).map((at) => `${at},${y(one.low[n])}`)).reverse();
    canvas.append(shape("polygon", { class: "band", points: [...over, ...under].join(" ") }));
  }
  for (const run of runs(one.values)) {
    if (run.length === 1) {
      const at = { cx: middle(run[0]), cy: y(one.values[run[0]]), r: 2.5 };
      canvas.append(shape("circle", at, { fill: one.colour }));
    } else {
      const points = run.map((n) => `${middle(n)},${y(one.values[n])}`).join(" ");
      const about = { points, fill: "none", "stroke-width": 2, "stroke-linejoin": "round" };
      if (one.dash) about["stroke-dasharray"] = one.dash;
      canvas.append(shape("polyline", about, { stroke: one.colour }));
    }
  }
}

function stack(canvas, { ends, width, series }, x, y) {
  ends.forEach((end, n) => {
    let under = 0;
    const from = x(end - width), to = x(end);
    const gap = to - from > 4 ? 1 : 0;
    for (const one of series) {
      const share = one.values[n];
      if (!known(share) || share <= 0) continue;
      canvas.append(shape("rect", { x: from, width: Math.max(0.5, to - from - gap), y: y(under + share),
        height: Math.max(0, y(under) - y(under + share)) }, { fill: one.colour }));
      under += share;
    }
  });
}

// A value with its interval on a scale of its own, and a mark to compare it with.
export function whisker(value, [from, to], mark, [low, high], colour) {
  const x = (at) => 200 * Math.min(1, Math.max(0, (at - low) / (high - low || 1)));
  const canvas = shape("svg", { viewBox: "0 0 200 18", height: 18, width: "100%",
    preserveAspectRatio: "none", "aria-hidden": true });
  canvas.append(shape("line", { class: "grid", x1: 0, x2: 200, y1: 9, y2: 9 }));
  if (known(value)) {
    const about = { y1: 9, y2: 9, "stroke-width": 5, opacity: 0.45 };
    canvas.append(shape("line", { ...about, x1: x(from), x2: x(to) },
      { stroke: colour }));
    canvas.append(shape("rect", { x: x(value) - 1.5, y: 3, width: 3, height: 12 }, { fill: colour }));
  }
  if (known(mark)) {
    canvas.append(shape("line", { class: "charge", x1: x(mark), x2: x(mark), y1: 1, y2: 17 }));
  }
  return canvas;
}

export function scaled([low, high]) {
  return node("div", { class: "ticks" }, ...valueTicks(low, high, 5).map((tick) => {
    const made = node("span", {}, number(tick, 6));
    made.style.left = `${(100 * (tick - low)) / (high - low || 1)}%`;
    return made;
  }));
}
