// The pictures: the arena over time, and memory over time below it on the same axis.

// Families of kinds share a hue, and hues are those of Okabe and Ito, which people with any colour vision can
// tell apart: blue is what is kept, green waits for the backward pass, orange and red flow back, violet is scratch.
const KIND_COLOURS = {
  persistent: "#3d5a80", // as state, which is persistent: copies of parameters in faster memory are not
  parameter: "#0b6bb0", optimizer_variable: "#67b1e0", state: "#3d5a80", constant: "#a3bfd6",
  input: "#6c757d", label: "#a7aeb5", activation: "#1f9d78", saved: "#7fcbb0", result: "#0f6650",
  derivative: "#e8a020", partial: "#f3cd80", gradient: "#d0591c", loss: "#7a2e0e", scratch: "#b279a7",
};
const OTHERS = [
  "#0b6bb0", "#e8a020", "#1f9d78", "#b279a7", "#d0591c", "#67b1e0", "#7fcbb0", "#f3cd80", "#3d5a80", "#a7aeb5",
  "#0f6650", "#cf9ac4",
];
const LIFETIME_COLOURS = {
  forward_function: "#b279a7", backward_function: "#cf9ac4", iteration: "#1f9d78", epoch: "#e8a020", max: "#0b6bb0",
};

const MARGIN = { left: 74, right: 12, top: 10, bottom: 26 };
const MOST_NAMES = 300;

const hex = (colour) => [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
const mixed = (a, b, share) => a.map((x, k) => Math.round(x + (b[k] - x) * share));
const packed = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

/** The colours of the page as it is shown now. */
function theme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    dark: document.documentElement.dataset.theme === "dark",
    ink: read("--ink"), quiet: read("--quiet"), line: read("--line"), grid: read("--grid"), free: read("--free"),
    card: read("--card"), accent: read("--accent"), bad: read("--bad"),
  };
}

/** Colours of words, for the page and for pixels. On a dark page they are a little lighter. */
function colourOf(word, number, by, dark) {
  const table = by === "kind" ? KIND_COLOURS : by === "lifetime" ? LIFETIME_COLOURS : {};
  const plain = hex(table[word] ?? OTHERS[number % OTHERS.length]);
  return dark ? mixed(plain, [255, 255, 255], 0.14) : plain;
}

/** A canvas that is as sharp as the screen; `draw` is called once a frame at most. */
class Picture {
  constructor(canvas, draw) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.height = Number(canvas.getAttribute("height"));
    this.draw = draw;
    this.waiting = false;
    canvas.style.height = `${this.height}px`;
    new ResizeObserver(() => this.later()).observe(canvas);
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.now();
    });
  }

  now() {
    const scale = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    if (!width) return;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(this.height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(this.height * scale);
    }
    this.width = width;
    this.scale = scale;
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.context.clearRect(0, 0, width, this.height);
    this.draw(this.context, width, this.height);
  }
}

/** What both pictures show: a plan, one of its spaces, a range of levels and of offsets. */
class Viewport {
  constructor(plan, space) {
    this.plan = plan;
    this.space = space;
    this.fit();
  }

  fit() {
    this.left = 0;
    this.right = Math.max(this.plan.levels, 1);
    this.low = 0;
    this.high = this.most;
  }

  /** What lies at the upper edge where everything is shown: the arena, and a little air above it. */
  get most() {
    return Math.max(this.plan.spaces[this.space]?.size ?? 0, 1) * 1.03;
  }

  /** Zoom by a factor, so that a level and an offset stay where they are. */
  zoom(factor, level, offset, time = true, bytes = true) {
    const levels = Math.max(this.plan.levels, 1);
    const { most } = this;
    if (time) {
      const span = Math.min(Math.max((this.right - this.left) * factor, Math.min(2, levels)), levels);
      const share = (level - this.left) / (this.right - this.left);
      this.left = Math.min(Math.max(level - share * span, 0), levels - span);
      this.right = this.left + span;
    }
    if (bytes) {
      const span = Math.min(Math.max((this.high - this.low) * factor, Math.min(64, most)), most);
      const share = (offset - this.low) / (this.high - this.low);
      this.low = Math.min(Math.max(offset - share * span, 0), most - span);
      this.high = this.low + span;
    }
  }

  move(levels, bytes) {
    const { most } = this;
    const width = this.right - this.left;
    const height = this.high - this.low;
    this.left = Math.min(Math.max(this.left + levels, 0), Math.max(this.plan.levels, 1) - width);
    this.right = this.left + width;
    this.low = Math.min(Math.max(this.low + bytes, 0), most - height);
    this.high = this.low + height;
  }

  /** Show a buffer with room around it. */
  around(b) {
    const { start, end, offset, size: bytes } = this.plan.buffers;
    this.fit();
    const middle = (start[b] + end[b]) / 2;
    const centre = offset[b] + bytes[b] / 2;
    const [levels, most] = [this.right - this.left, this.high - this.low];
    const width = Math.min(Math.max((end[b] - start[b]) * 1.8, 4), levels);
    const height = Math.min(Math.max(bytes[b] * 3, 64), most);
    this.left = Math.min(Math.max(middle - width / 2, 0), levels - width);
    this.right = this.left + width;
    this.low = Math.min(Math.max(centre - height / 2, 0), most - height);
    this.high = this.low + height;
  }
}

/** Everything that `arena` and `memory` draw and answer. `state` is the page's: chosen, level, colours. */
class Arena {
  constructor(canvas, memory, state) {
    this.state = state;
    this.picture = new Picture(canvas, (...given) => this.drawArena(...given));
    this.memory = new Picture(memory, (...given) => this.drawMemory(...given));
  }

  later() {
    this.picture.later();
    this.memory.later();
  }

  /** The plot inside the margins, in pixels of the page. */
  plot(picture) {
    return {
      x: MARGIN.left, y: MARGIN.top, width: Math.max(picture.width - MARGIN.left - MARGIN.right, 1),
      height: picture.height - MARGIN.top - MARGIN.bottom,
    };
  }

  levelAt(x) {
    const { left, right } = this.state.view;
    const plot = this.plot(this.picture);
    return left + ((x - plot.x) / plot.width) * (right - left);
  }

  offsetAt(y) {
    const { low, high } = this.state.view;
    const plot = this.plot(this.picture);
    return high - ((y - plot.y) / plot.height) * (high - low);
  }

  xOf(level) {
    const { left, right } = this.state.view;
    const plot = this.plot(this.picture);
    return plot.x + ((level - left) / (right - left)) * plot.width;
  }

  yOf(offset) {
    const { low, high } = this.state.view;
    const plot = this.plot(this.picture);
    return plot.y + ((high - offset) / (high - low)) * plot.height;
  }

  /** A colour for each buffer, as a pixel; those that a search or the legend leaves out are faint. */
  pixels(colours) {
    const { state } = this;
    const { plan, by } = state;
    const key = [plan.digest, by, colours.dark, state.only, state.matches].join("|");
    if (this.cache?.key === key && this.cache.matches === state.matches && this.cache.plan === plan) return this.cache;
    const list = plan.words[by === "kind" ? "kinds" : by === "layer" ? "layers" : "lifetimes"];
    const free = hex(colours.free);
    const plain = list.map((word, k) => colourOf(word, k, by, colours.dark));
    const strong = Uint32Array.from(plain, packed);
    const faint = Uint32Array.from(plain, (one) => packed(mixed(one, free, 0.82)));
    const word = plan.buffers[by];
    const fill = new Uint32Array(plan.count);
    for (let b = 0; b < plan.count; b += 1) {
      const shown = (state.only === null || state.only === word[b]) && (state.matches === null || state.matches.has(b));
      fill[b] = (shown ? strong : faint)[word[b]];
    }
    const edge = mixed(free, colours.dark ? [0, 0, 0] : [255, 255, 255], 0.75);
    this.cache = { key, plan, matches: state.matches, fill, edge: packed(edge), free: packed(free), plain };
    return this.cache;
  }

  /** Paints rectangles into pixels by hand: 100,000 of them take some milliseconds, wherever they lie. */
  paint(context, plot, colours) {
    const { plan, view } = this.state;
    const scale = this.picture.scale;
    const width = Math.round(plot.width * scale);
    const height = Math.round(plot.height * scale);
    if (this.image?.width !== width || this.image?.height !== height) {
      this.image = new ImageData(width, height);
      this.raster = new Uint32Array(this.image.data.buffer);
    }
    const raster = this.raster;
    const { fill, edge, free } = this.pixels(colours);
    raster.fill(free);
    const { owner, start, end } = plan.pieces;
    const { offset, size: bytes, space } = plan.buffers;
    const across = width / (view.right - view.left);
    const up = height / (view.high - view.low);
    const names = [];
    for (let p = 0; p < owner.length; p += 1) {
      const b = owner[p];
      if (space[b] !== view.space || end[p] <= view.left || start[p] >= view.right) continue;
      const low = offset[b];
      const top = low + bytes[b];
      if (top <= view.low || low >= view.high) continue;
      const x0 = Math.max(Math.round((start[p] - view.left) * across), 0);
      const x1 = Math.min(Math.max(Math.round((end[p] - view.left) * across), x0 + 1), width);
      const y0 = Math.max(Math.round((view.high - top) * up), 0);
      const y1 = Math.min(Math.max(Math.round((view.high - low) * up), y0 + 1), height);
      if (x0 >= width || y0 >= height) continue;
      const edged = x1 - x0 >= 4 && y1 - y0 >= 4;
      const colour = fill[b];
      for (let y = y0; y < y1; y += 1) {
        const row = y * width;
        raster.fill(colour, row + x0, row + x1);
        if (edged) raster[row + x1 - 1] = edge;
      }
      if (edged) raster.fill(edge, y0 * width + x0, y0 * width + x1);
      if (x1 - x0 >= 46 * scale && y1 - y0 >= 13 * scale) names.push([b, x0, x1, y0, y1]);
    }
    context.putImageData(this.image, Math.round(plot.x * scale), Math.round(plot.y * scale));
    return names;
  }

  drawArena(context, width, height) {
    const { plan, view, chosen, level } = this.state;
    const colours = theme();
    const plot = this.plot(this.picture);
    const names = this.paint(context, plot, colours);
    const space = plan.spaces[view.space];
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    names.sort((a, b) => (b[2] - b[1]) * (b[4] - b[3]) - (a[2] - a[1]) * (a[4] - a[3]));
    for (const [b, x0, x1, y0, y1] of names.slice(0, MOST_NAMES)) {
      const scale = this.picture.scale;
      const [r, g, blue] = this.cache.plain[plan.buffers[this.state.by][b]];
      const shown = this.cache.fill[b] === packed([r, g, blue]);
      context.fillStyle = !shown ? colours.quiet : 0.299 * r + 0.587 * g + 0.114 * blue > 140 ? "#10181f" : "#ffffff";
      const room = (x1 - x0) / scale - 8;
      let name = plan.label(b);
      if (context.measureText(name).width > room) {
        const letters = Math.floor(room / 6.2) - 1;
        if (letters < 4) continue;
        name = `${name.slice(0, letters)}…`;
        if (context.measureText(name).width > room + 3) continue;
      }
      context.fillText(name, plot.x + x0 / scale + 4, plot.y + (y0 + y1) / 2 / scale + 0.5);
    }
    this.axes(context, plot, colours, view.low, view.high, (offset) => this.yOf(offset), true);
    context.save();
    context.beginPath();
    context.rect(plot.x, plot.y, plot.width, plot.height);
    context.clip();
    this.limit(context, plot, this.yOf(space.size), colours.ink, [], `arena ${size(space.size)}`, true);
    if (space.bound && space.bound < space.size) {
      this.limit(context, plot, this.yOf(space.bound), colours.accent, [6, 4], `bound ${size(space.bound)}`, false);
    }
    this.marks(context, plot, colours);
    this.cursor(context, plot, colours, level);
    if (chosen >= 0 && plan.buffers.space[chosen] === view.space) this.outline(context, colours, chosen);
    context.restore();
  }

  /** Where each entry point begins, with its name. */
  marks(context, plot, colours) {
    for (const [level, name] of this.state.plan.marks ?? []) {
      const x = Math.max(Math.round(this.xOf(level)), plot.x);
      if (this.xOf(level) < plot.x - 1) continue;
      context.fillStyle = colours.ink;
      context.fillRect(x - 0.5, plot.y, 1.5, plot.height);
      const width = context.measureText(name).width + 10;
      context.fillRect(x, plot.y, width, 17);
      context.fillStyle = colours.card;
      context.textBaseline = "middle";
      context.fillText(name, x + 5, plot.y + 9);
    }
  }

  outline(context, colours, chosen) {
    const { plan } = this.state;
    const { owner, start, end } = plan.pieces;
    const low = plan.buffers.offset[chosen];
    const y0 = this.yOf(low + plan.buffers.size[chosen]);
    const y1 = this.yOf(low);
    for (let p = 0; p < owner.length; p += 1) {
      if (owner[p] !== chosen) continue;
      const x0 = this.xOf(start[p]);
      const x1 = this.xOf(end[p]);
      for (const [colour, line] of [[colours.card, 5], [colours.ink, 2.5]]) {
        context.strokeStyle = colour;
        context.lineWidth = line;
        context.strokeRect(x0, y0, Math.max(x1 - x0, 2), Math.max(y1 - y0, 2));
      }
    }
  }

  limit(context, plot, y, colour, dash, text, above) {
    context.strokeStyle = colour;
    context.lineWidth = 1.25;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(plot.x, y);
    context.lineTo(plot.x + plot.width, y);
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = colour;
    context.textAlign = "right";
    context.textBaseline = above ? "bottom" : "top";
    context.fillText(text, plot.x + plot.width - 4, y + (above ? -1 : 3));
    context.textAlign = "left";
    context.textBaseline = "middle";
  }

  cursor(context, plot, colours, level) {
    const x0 = this.xOf(level);
    const x1 = this.xOf(level + 1);
    context.fillStyle = colours.dark ? "rgb(255 255 255 / .13)" : "rgb(0 0 0 / .1)";
    context.fillRect(x0, plot.y, Math.max(x1 - x0, 1), plot.height);
    context.fillStyle = colours.ink;
    context.fillRect((x0 + x1) / 2 - 0.5, plot.y, 1, plot.height);
  }

  /** Figures beside the plot, and lines in it where it is not full of buffers. */
  axes(context, plot, colours, low, high, yOf, bottom) {
    const { view } = this.state;
    const [unit, name] = unitOf(high);
    context.fillStyle = colours.quiet;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const bytes of ticks(low, high, plot.height / 48, unit)) {
      const y = yOf(bytes);
      if (y < plot.y - 1 || y > plot.y + plot.height + 1) continue;
      context.fillText(onAxis(bytes, unit, name), plot.x - 8, y);
      context.fillRect(plot.x - 4, Math.round(y), 4, 1);
    }
    if (bottom) {
      context.textAlign = "center";
      context.textBaseline = "top";
      for (const level of ticks(view.left, view.right, plot.width / 90)) {
        if (!Number.isInteger(level)) continue;
        const x = this.xOf(level);
        context.fillText(count(level), Math.min(x, plot.x + plot.width - 8), plot.y + plot.height + 8);
        context.fillRect(Math.round(x), plot.y + plot.height, 1, 4);
      }
      context.textAlign = "left";
      context.fillText(this.state.plan.unit, 8, plot.y + plot.height + 8);
    }
    context.textAlign = "left";
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    context.strokeRect(plot.x - 0.5, plot.y - 0.5, plot.width + 1, plot.height + 1);
  }

  drawMemory(context, width, height) {
    const { plan, view, level } = this.state;
    const colours = theme();
    const plot = this.plot(this.memory);
    const space = plan.spaces[view.space];
    const kinds = plan.words.kinds;
    const top = Math.max(space.size, space.load, 1) * 1.24;
    const yOf = (bytes) => plot.y + (1 - bytes / top) * plot.height;
    const fills = kinds.map((kind, k) => css(colourOf(kind, k, "kind", colours.dark)));
    context.fillStyle = colours.free;
    context.fillRect(plot.x, plot.y, plot.width, plot.height);
    // One bar a pixel, of the level in it with the largest load; or one a level where they are wider.
    const perLevel = plot.width / (view.right - view.left);
    const first = Math.floor(view.left);
    const bars = perLevel >= 1 ? Math.ceil(view.right) - first : Math.ceil(plot.width);
    for (let k = 0; k < bars; k += 1) {
      const from = perLevel >= 1 ? first + k : Math.floor(view.left + k / perLevel);
      const to = perLevel >= 1 ? from + 1 : Math.max(Math.floor(view.left + (k + 1) / perLevel), from + 1);
      let at = from;
      for (let one = from; one < Math.min(to, plan.levels); one += 1) if (space.loads[one] > space.loads[at]) at = one;
      const x0 = perLevel >= 1 ? Math.max(this.xOf(from), plot.x) : plot.x + k;
      const x1 = perLevel >= 1 ? Math.min(this.xOf(to), plot.x + plot.width) : plot.x + k + 1;
      let sum = 0;
      for (let kind = 0; kind < kinds.length; kind += 1) {
        const bytes = space.stacked[at * kinds.length + kind];
        if (!bytes) continue;
        const y0 = yOf(sum + bytes);
        context.fillStyle = fills[kind];
        const left = Math.round(x0 * this.memory.scale) / this.memory.scale;
        context.fillRect(left, y0, Math.round(x1 * this.memory.scale) / this.memory.scale - left, yOf(sum) - y0);
        sum += bytes;
      }
    }
    this.axes(context, plot, colours, 0, top, yOf, true);
    this.limit(context, plot, yOf(space.size), colours.ink, [], `arena ${size(space.size)}`, true);
    if (space.bound && space.bound < space.size) {
      this.limit(context, plot, yOf(space.bound), colours.accent, [6, 4], `bound ${size(space.bound)}`, false);
    }
    context.save();
    context.beginPath();
    context.rect(plot.x, plot.y, plot.width, plot.height);
    context.clip();
    this.cursor(context, plot, colours, level);
    context.restore();
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colours.ink;
    context.textBaseline = "top";
    context.fillText("live bytes by kind", plot.x + 6, plot.y + 4);
  }
}

/** Both plans' memory, each over its own iteration from beginning to end. */
function drawOverlay(context, width, height, old, now) {
  const colours = theme();
  const plot = { x: MARGIN.left, y: 8, width: width - MARGIN.left - MARGIN.right, height: height - 34 };
  const top = Math.max(old.bytes, now.bytes, 1) * 1.08;
  const yOf = (bytes) => plot.y + (1 - bytes / top) * plot.height;
  const [unit, name] = unitOf(top);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = colours.quiet;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const bytes of ticks(0, top, plot.height / 40, unit)) {
    context.fillStyle = colours.quiet;
    context.fillText(onAxis(bytes, unit, name), plot.x - 8, yOf(bytes));
    context.fillStyle = colours.grid;
    context.fillRect(plot.x, Math.round(yOf(bytes)), plot.width, 1);
  }
  context.fillStyle = colours.quiet;
  context.textBaseline = "top";
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    context.textAlign = share === 0 ? "left" : share === 1 ? "right" : "center";
    context.fillText(`${100 * share} %`, plot.x + share * plot.width, plot.y + plot.height + 6);
  }
  const line = (plan) => {
    const path = new Path2D();
    const most = Math.ceil(plot.width);
    for (let x = 0; x < most; x += 1) {
      const from = Math.floor((x / most) * plan.levels);
      const to = Math.max(Math.ceil(((x + 1) / most) * plan.levels), from + 1);
      let load = 0;
      for (let at = from; at < Math.min(to, plan.levels); at += 1) {
        load = Math.max(load, plan.spaces.reduce((sum, space) => sum + space.loads[at], 0));
      }
      path[x ? "lineTo" : "moveTo"](plot.x + x, yOf(load));
    }
    return path;
  };
  for (const [plan, colour, dash] of [[old, colours.quiet, [5, 4]], [now, colours.accent, []]]) {
    context.setLineDash(dash);
    context.strokeStyle = colour;
    context.lineWidth = dash.length ? 1.5 : 2;
    context.stroke(line(plan));
    context.lineWidth = 1;
    context.strokeRect(plot.x, yOf(plan.bytes), plot.width, 0);
  }
  context.setLineDash([]);
}
