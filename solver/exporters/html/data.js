// The tables of a plan, unpacked, and what follows from them.

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array };
const ACCESS = ["reads", "writes", "updates", "scratch"];

function unpacked({ t, d }) {
  const text = atob(d);
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k += 1) bytes[k] = text.charCodeAt(k);
  return new ARRAYS[t](bytes.buffer);
}

const columns = (table) => Object.fromEntries(Object.entries(table).map(([name, column]) => [name, unpacked(column)]));

class Plan {
  constructor(given) {
    Object.assign(this, given);
    this.unit = given.parallelism === 1 ? "step" : "level";
    this.buffers = columns(given.buffers);
    const { labels, ...values } = given.values;
    this.labels = labels;
    this.values = columns(values);
    const { labels: names, kernels, ...steps } = given.steps;
    this.stepLabels = names;
    this.kernels = kernels;
    this.steps = columns(steps);
    this.count = this.buffers.size.length;
    // The first value of each buffer, and the buffer of each value.
    this.firstValue = new Uint32Array(this.count + 1);
    for (let b = 0; b < this.count; b += 1) this.firstValue[b + 1] = this.firstValue[b] + this.buffers.values[b];
    this.bufferOf = new Uint32Array(labels.length);
    for (let b = 0; b < this.count; b += 1) this.bufferOf.fill(b, this.firstValue[b], this.firstValue[b + 1]);
    this.makePieces(columns(given.lent));
    this.spaces.forEach((space, k) => this.measure(space, k));
    this.bytes = this.spaces.reduce((sum, space) => sum + space.size, 0);
    this.bound = this.spaces.reduce((sum, space) => sum + space.bound, 0);
    this.peak = this.spaces.reduce((sum, space) => sum + space.load, 0);
    this.total = this.buffers.size.reduce((sum, bytes) => sum + bytes, 0);
    this.byLevel = null;
  }

  /** Rectangles to draw: a buffer is several where its bytes are lent in between. */
  makePieces(lent) {
    const { start, end } = this.buffers;
    const gaps = new Map();
    lent.buffer.forEach((b, k) => {
      if (!gaps.has(b)) gaps.set(b, []);
      gaps.get(b).push([lent.start[k], lent.end[k]]);
    });
    const owner = [];
    const from = [];
    const to = [];
    for (let b = 0; b < this.count; b += 1) {
      let at = start[b];
      for (const [left, right] of gaps.get(b) ?? []) {
        owner.push(b);
        from.push(at);
        to.push(left);
        at = right;
      }
      owner.push(b);
      from.push(at);
      to.push(end[b]);
    }
    this.pieces = { owner: Uint32Array.from(owner), start: Uint32Array.from(from), end: Uint32Array.from(to) };
  }

  /** The load of a space at each level, by kind, and its peak. */
  measure(space, k) {
    const kinds = this.words.kinds.length;
    const levels = Math.max(this.levels, 1);
    const load = new Float64Array(levels);
    const stacked = new Float64Array((levels + 1) * kinds);
    const { owner, start, end } = this.pieces;
    let buffers = 0;
    for (let p = 0; p < owner.length; p += 1) {
      const b = owner[p];
      if (this.buffers.space[b] !== k) continue;
      stacked[Math.min(start[p], levels) * kinds + this.buffers.kind[b]] += this.buffers.size[b];
      stacked[Math.min(end[p], levels) * kinds + this.buffers.kind[b]] -= this.buffers.size[b];
    }
    for (let b = 0; b < this.count; b += 1) buffers += this.buffers.space[b] === k;
    for (let at = kinds; at < levels * kinds; at += 1) stacked[at] += stacked[at - kinds];
    space.peak = 0;
    for (let level = 0; level < levels; level += 1) {
      for (let kind = 0; kind < kinds; kind += 1) load[level] += stacked[level * kinds + kind];
      if (load[level] > load[space.peak]) space.peak = level;
    }
    Object.assign(space, { loads: load, stacked, load: load[space.peak], buffers });
  }

  label(b) {
    return this.labels[this.firstValue[b]];
  }

  type(b) {
    return this.words.types[this.values.type[this.firstValue[b]]];
  }

  kind(b) {
    return this.words.kinds[this.buffers.kind[b]];
  }

  layer(b) {
    return this.words.layers[this.buffers.layer[b]];
  }

  /** The buffers of a space that are live at a level, in the order of the plan. */
  liveAt(space, level) {
    const { owner, start, end } = this.pieces;
    const found = [];
    for (let p = 0; p < owner.length; p += 1) {
      if (start[p] <= level && level < end[p] && this.buffers.space[owner[p]] === space) found.push(owner[p]);
    }
    return found;
  }

  /** The buffer at a level and an offset of a space, or -1. */
  at(space, level, offset) {
    const { owner, start, end } = this.pieces;
    for (let p = 0; p < owner.length; p += 1) {
      const b = owner[p];
      const low = this.buffers.offset[b];
      if (
        start[p] <= level && level < end[p] && low <= offset && offset < low + this.buffers.size[b] &&
        this.buffers.space[b] === space
      ) return b;
    }
    return -1;
  }

  /** What runs on a level: numbers of steps. */
  stepsAt(level) {
    if (this.byLevel === null) {
      this.byLevel = Array.from({ length: this.levels }, () => []);
      this.steps.level.forEach((one, t) => this.byLevel[Math.min(one, this.levels - 1)]?.push(t));
    }
    return this.byLevel[level] ?? [];
  }

  levelName(level) {
    return this.stepsAt(level).map((t) => this.stepLabels[t]).join(" + ");
  }

  /** Who touches a buffer, in order: step, value, how. */
  touches(b) {
    const found = [];
    const low = this.firstValue[b];
    const high = this.firstValue[b + 1];
    const { first, value, access } = this.steps;
    for (let t = 0; t + 1 < first.length; t += 1) {
      for (let k = first[t]; k < first[t + 1]; k += 1) {
        if (low <= value[k] && value[k] < high) found.push([t, value[k], access[k]]);
      }
    }
    return found;
  }

  /** Sums of sizes of some buffers by a word of theirs, the largest first: [word, bytes, buffers]. */
  grouped(buffers, wordOf) {
    const sums = new Map();
    for (const b of buffers) {
      const word = wordOf(b);
      const sum = sums.get(word) ?? [word, 0, 0];
      sum[1] += this.buffers.size[b];
      sum[2] += 1;
      sums.set(word, sum);
    }
    return [...sums.values()].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  }

  /** The first buffer with a value of this name, or -1. */
  named(label) {
    const value = this.labels.indexOf(label);
    return value < 0 ? -1 : this.bufferOf[value];
  }
}
