// Controls, tables and keys.

const given = JSON.parse(byId("data").textContent);
const plans = given.plans.map((one) => new Plan(one));
const MOST_ROWS = 100;
const MOST_FOUND = 60;
const MOST_BARS = 9;

const state = {
  plan: plans[0], view: new Viewport(plans[0], largest(plans[0])), chosen: -1, level: 0, by: "kind", only: null,
  matches: null, sort: ["bytes", -1], rows: MOST_ROWS, changeBy: "operand",
};
const arena = new Arena(byId("arena"), byId("memory"), state);
const overlay = given.change && new Picture(byId("overlay"), (context, width, height) => drawOverlay(context, width, height, plans[1], plans[0]));

/** The space with most in it is shown first. */
function largest(plan) {
  return plan.spaces.reduce((best, space, k) => (space.buffers > plan.spaces[best].buffers ? k : best), 0);
}

const space = () => state.plan.spaces[state.view.space];
const say = (text) => {
  byId("status").textContent = text;
};

// ------------------------------------------------------------------------------------------- what is said

function figures() {
  const { plan } = state;
  const proved = plan.bytes === plan.bound;
  const rows = [
    plan.spaces.length > 1
      ? ["All memories", size(plan.bytes), plan.spaces.map((one) => `${one.name} ${count(one.size)}`).join(", ") + " bytes"]
      : ["Arena", size(plan.bytes), `${count(plan.bytes)} bytes`],
    [
      "Lower bound", size(plan.bound),
      proved ? "reached: no layout of these buffers is smaller" : `${percent(plan.bytes / plan.bound - 1)} below the arena`,
      proved ? "good" : "bad",
    ],
    ["Without reuse", size(plan.total), plan.total ? `${percent(1 - plan.bytes / plan.total)} saved` : ""],
    [
      plan.spaces.length > 1 ? "Live at the peaks" : "Live at the peak", size(plan.peak),
      plan.bytes ? `${percent(plan.peak / plan.bytes)} of ${plan.spaces.length > 1 ? "all memories, each at its own peak" : "the arena"}` : "",
    ],
    ["Buffers", count(plan.count), plan.labels.length > plan.count ? `hold ${count(plan.labels.length)} values` : "one value each"],
    ["Steps", count(plan.stepLabels.length), plan.unit === "level" ? `on ${count(plan.levels)} levels` : "one after the other"],
  ];
  byId("figures").replaceChildren(
    ...rows.map(([name, figure, note, mark]) =>
      element("div", {}, element("dt", {}, name), element("dd", mark ? { class: mark } : {}, figure, element("small", {}, note)))),
  );
  byId("about").textContent = `Target ${plan.target} · ${plan.deterministic ? "deterministic" : "wall time had a say"} · digest ${plan.digest.slice(0, 16)}…`;
}

function pairs(id, rows) {
  const cells = rows.flatMap(([name, value]) => [
    element("dt", {}, words(String(name))),
    element("dd", {}, value === null ? "not set" : value === true ? "yes" : value === false ? "no" : typeof value === "number" ? count(value) : breakable(String(value))),
  ]);
  (typeof id === "string" ? byId(id) : id).replaceChildren(...cells);
}

function certificate() {
  const { plan } = state;
  const head = ["memory", "size", "lower bound", "gap", "status", "proof", "found by"];
  byId("proof-table").tHead.replaceChildren(
    element("tr", {}, ...head.map((name, k) => element("th", { scope: "col", class: k > 0 && k < 4 ? "number" : null }, name))),
  );
  byId("proof-table").tBodies[0].replaceChildren(
    ...plan.spaces.map((one) =>
      element("tr", {}, element("th", { scope: "row" }, one.name), element("td", { class: "number" }, count(one.size)),
        element("td", { class: "number" }, count(one.bound)),
        element("td", { class: "number" }, one.bound ? `${(100 * (one.size / one.bound - 1)).toFixed(2)} %` : "–"),
        element("td", {}, one.status), element("td", {}, one.proof ? `${one.proof}. ${one.note}` : one.note), element("td", {}, one.solver))),
  );
  byId("notes").replaceChildren(...plan.notes.map((note) => element("li", {}, note)));
  pairs("options", plan.options);
  const records = plan.records.flatMap(([name, facts]) => {
    const list = element("dl", { class: "pairs" });
    pairs(list, facts);
    return [element("h4", {}, words(name)), list];
  });
  byId("records").replaceChildren(...(records.length ? records : [element("p", { class: "quiet" }, "None changed anything.")]));
  pairs("identity", [["graph", plan.graph], ["target", plan.target], ["digest", plan.digest], ["deterministic", plan.deterministic]]);
}

function bars(id, rows, total, colour, { choose = null, shown = String } = {}) {
  byId(id).replaceChildren(
    ...rows.map(([name, bytes, note, target]) => {
      const bar = element("i", { "aria-hidden": "true" });
      bar.style.setProperty("--share", `${(100 * bytes) / total}%`);
      bar.style.setProperty("--fill", colour(name, target));
      const text = [element("span", { title: name }, shown(name)), element("b", {}, `${size(bytes)} · ${percent(bytes / total)}`), bar];
      return choose ? element("button", { type: "button", title: note, click: () => choose(target) }, ...text) : element("div", { title: note }, ...text);
    }),
  );
}

/** The first rows, and the rest as one. */
function shortened(rows) {
  if (rows.length <= MOST_BARS) return rows;
  const rest = rows.slice(MOST_BARS - 1);
  const bytes = rest.reduce((sum, row) => sum + row[1], 0);
  return [...rows.slice(0, MOST_BARS - 1), [`${count(rest.length)} others`, bytes, 0]];
}

function peak() {
  const { plan, view } = state;
  const one = space();
  const dark = theme().dark;
  const live = plan.liveAt(view.space, one.peak);
  const total = Math.max(one.load, 1);
  const kinds = plan.grouped(live, (b) => plan.kind(b));
  const layersOf = plan.grouped(live, (b) => plan.layer(b));
  const large = [...live].sort((a, b) => plan.buffers.size[b] - plan.buffers.size[a] || a - b);
  const lead = byId("peak-lead");
  if (!live.length) {
    lead.textContent = "Nothing lives in this memory.";
  } else {
    const idle = one.size - one.load;
    const spread = large.slice(0, 3).reduce((sum, b) => sum + plan.buffers.size[b], 0);
    lead.replaceChildren(
      "Most is live at ", element("b", {}, `${plan.unit} ${count(one.peak)}`), `, ${plan.levelName(one.peak)}: `,
      element("b", {}, size(one.load)), ` in ${count(live.length)} buffers. `,
      idle === 0
        ? `That is the whole arena, so no layout of these buffers can be smaller: to make it smaller, this ${plan.unit} must need less. `
        : `The arena is ${size(idle)} larger, which no buffer fills at that moment. `,
      `Most of it is ${words(kinds[0][0])} (${percent(kinds[0][1] / total)}); the largest ${live.length > 2 ? "three buffers" : "buffers"} are ${percent(spread / total)} of it.`,
    );
  }
  bars("peak-kinds", kinds.map(([name, bytes, n]) => [name, bytes, `${count(n)} buffers`]), total,
    (name) => css(colourOf(name, plan.words.kinds.indexOf(name), "kind", dark)), { shown: words });
  bars("peak-layers", shortened(layersOf).map(([name, bytes, n]) => [name, bytes, `${count(n)} buffers`]), total, () => "var(--quiet)");
  bars("peak-buffers", large.slice(0, MOST_BARS).map((b) => [plan.label(b), plan.buffers.size[b], plan.kind(b), b]), total,
    (_, b) => css(colourOf(plan.kind(b), plan.buffers.kind[b], "kind", dark)), { choose });
}

// --------------------------------------------------------------------------------------------- one step

const COLUMNS = {
  name: { title: "buffer", of: (plan, b) => plan.label(b) },
  kind: { title: "kind", of: (plan, b) => plan.kind(b) },
  layer: { title: "layer", of: (plan, b) => plan.layer(b) },
  type: { title: "type", of: (plan, b) => plan.type(b) },
  bytes: { title: "bytes", of: (plan, b) => plan.buffers.size[b], number: true },
  offset: { title: "offset", of: (plan, b) => plan.buffers.offset[b], number: true },
  start: { title: "from", of: (plan, b) => plan.buffers.start[b], number: true },
  end: { title: "to", of: (plan, b) => plan.buffers.end[b] - 1, number: true },
};

function live() {
  const { plan, view, level } = state;
  const all = plan.liveAt(view.space, level);
  const bytes = all.reduce((sum, b) => sum + plan.buffers.size[b], 0);
  const [key, way] = state.sort;
  const { of, number } = COLUMNS[key];
  const shown = all.filter((b) => state.only === null || plan.buffers[state.by][b] === state.only);
  const rows = shown.map((b) => [of(plan, b), b]);
  rows.sort(([a, i], [b, j]) => way * (number ? a - b : a < b ? -1 : a > b ? 1 : 0) || i - j);
  const dark = theme().dark;
  byId("live-sum").textContent = `${size(bytes)} in ${count(all.length)} buffers, ${space().size ? percent(bytes / space().size) : "0 %"} of ${space().name}`;
  byId("live-table").tHead.replaceChildren(element("tr", {}, ...Object.entries(COLUMNS).map(([name, column]) =>
    element("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": name === key ? (way > 0 ? "ascending" : "descending") : "none" },
      element("button", { type: "button", click: () => {
        state.sort = [name, name === key ? -way : column.number ? -1 : 1];
        live();
        byId("live-table").tHead.querySelectorAll("button")[Object.keys(COLUMNS).indexOf(name)].focus();
      } }, column.title)))));
  byId("live-table").tBodies[0].replaceChildren(...rows.slice(0, state.rows).map(([, b]) =>
    element("tr", { class: b === state.chosen ? "chosen" : null },
      element("td", { class: "name" }, element("button", { type: "button", click: () => choose(b) }, plan.label(b))),
      element("td", {}, swatch(css(colourOf(plan.kind(b), plan.buffers.kind[b], "kind", dark))), ` ${words(plan.kind(b))}`),
      element("td", {}, plan.layer(b)), element("td", {}, plan.type(b)),
      ...["bytes", "offset", "start", "end"].map((name) => element("td", { class: "number" }, count(COLUMNS[name].of(plan, b)))))));
  const rest = rows.length - state.rows;
  byId("live-more").hidden = rest <= 0;
  byId("live-more").textContent = `Show ${count(rest)} more`;
  const steps = plan.stepsAt(level);
  byId("step-name").textContent = plan.levels ? `${plan.unit} ${count(level)} of ${count(plan.levels - 1)}: ${plan.levelName(level)}` : "no steps";
  byId("step-uses").textContent = steps.map((t) => `${plan.kernels[plan.steps.kernel[t]]} binds ${count(plan.steps.first[t + 1] - plan.steps.first[t])} values`).join("; ");
}

function go(level) {
  state.level = Math.min(Math.max(Math.round(level), 0), Math.max(state.plan.levels - 1, 0));
  state.rows = MOST_ROWS;
  byId("step").value = state.level;
  live();
  arena.later();
}

// ------------------------------------------------------------------------------------------ one buffer

function choose(b, level = null) {
  const { plan, view } = state;
  state.chosen = b;
  if (b < 0) {
    byId("chosen-title").textContent = "Nothing chosen";
    byId("chosen").replaceChildren(element("p", { class: "quiet" }, "Click a buffer in the picture, or a name in a table."));
    live();
    arena.later();
    return;
  }
  const { buffers } = plan;
  if (buffers.space[b] !== view.space) show(plan, buffers.space[b]);
  const inside = buffers.start[b] <= state.level && state.level < buffers.end[b];
  const low = plan.firstValue[b];
  const high = plan.firstValue[b + 1];
  const rows = element("dl", { class: "pairs" });
  const lasting = buffers.end[b] - buffers.start[b];
  pairs(rows, [
    ["kind", words(plan.kind(b))], ["layer", plan.layer(b)], ["type", plan.type(b)],
    ["size", `${count(buffers.size[b])} bytes (${size(buffers.size[b])})`],
    ["offset", `${count(buffers.offset[b])} to ${count(buffers.offset[b] + buffers.size[b])}`],
    ["lives", `${plan.unit}s ${count(buffers.start[b])} to ${count(buffers.end[b] - 1)} (${count(lasting)})`],
    ["from", plan.levelName(buffers.start[b])], ["until", plan.levelName(buffers.end[b] - 1)],
    ["kept for", words(plan.words.lifetimes[buffers.lifetime[b]])],
    ["at the peak", buffers.start[b] <= space().peak && space().peak < buffers.end[b] ? percent(buffers.size[b] / Math.max(space().load, 1)) : "not live"],
  ]);
  const parts = [rows];
  if (high - low > 1) {
    parts.push(element("h4", {}, `${count(high - low)} values share it`));
    parts.push(element("ul", { class: "touches" }, ...Array.from({ length: Math.min(high - low, 20) }, (_, k) =>
      element("li", {}, element("button", { type: "button", click: () => go(plan.values.start[low + k]) },
        element("i", {}, ["first", "view", "over"][plan.values.how[low + k]]), element("span", {}, breakable(plan.labels[low + k])),
        element("em", {}, `${count(plan.values.start[low + k])}–${count(plan.values.end[low + k] - 1)}`))))));
  }
  const touches = plan.touches(b);
  parts.push(element("h4", {}, `${count(touches.length)} ${touches.length === 1 ? "use" : "uses"} by steps`));
  parts.push(element("ul", { class: "touches" }, ...touches.slice(0, 60).map(([t, value, how]) =>
    element("li", {}, element("button", { type: "button", click: () => go(plan.steps.level[t]) },
      element("i", {}, ACCESS[how]), element("span", {}, breakable(plan.stepLabels[t] + (value === low ? "" : `, ${plan.labels[value]}`))),
      element("em", {}, count(plan.steps.level[t])))))));
  byId("chosen-title").replaceChildren(swatch(css(colourOf(plan.kind(b), buffers.kind[b], "kind", theme().dark))), " ", breakable(plan.label(b)));
  byId("chosen").replaceChildren(...parts);
  say(`${plan.label(b)}, ${words(plan.kind(b))}, ${size(buffers.size[b])}, ${plan.unit}s ${buffers.start[b]} to ${buffers.end[b] - 1}`);
  go(level ?? (inside ? state.level : buffers.start[b]));
}

function beside(way) {
  const all = state.plan.liveAt(state.view.space, state.level).sort((a, b) => state.plan.buffers.offset[a] - state.plan.buffers.offset[b]);
  if (!all.length) return;
  const at = all.indexOf(state.chosen);
  choose(all[at < 0 ? (way > 0 ? 0 : all.length - 1) : (at + way + all.length) % all.length]);
}

function search(text) {
  const wanted = text.trim().toLowerCase();
  const box = byId("found");
  if (!wanted) {
    state.matches = null;
    box.hidden = true;
    arena.later();
    return;
  }
  const { plan } = state;
  const matches = new Set();
  plan.labels.forEach((label, value) => {
    if (label.toLowerCase().includes(wanted)) matches.add(plan.bufferOf[value]);
  });
  const inLayers = new Set(plan.words.layers.flatMap((layer, k) => (layer.toLowerCase().includes(wanted) ? [k] : [])));
  if (inLayers.size) plan.buffers.layer.forEach((layer, b) => inLayers.has(layer) && matches.add(b));
  state.matches = matches;
  const sorted = [...matches].sort((a, b) => plan.buffers.size[b] - plan.buffers.size[a] || a - b);
  box.replaceChildren(
    element("p", { class: "quiet" }, matches.size ? `${count(matches.size)} ${matches.size === 1 ? "buffer" : "buffers"}, ${size(sorted.reduce((sum, b) => sum + plan.buffers.size[b], 0))}` : "No such name."),
    ...sorted.slice(0, MOST_FOUND).map((b) => element("button", { type: "button", click: () => {
      box.hidden = true;
      choose(b);
      byId("arena").focus();
    } }, element("span", {}, plan.label(b)), element("span", { class: "quiet" }, size(plan.buffers.size[b])))),
  );
  box.hidden = false;
  say(`${count(matches.size)} buffers match`);
  arena.later();
}

// -------------------------------------------------------------------------------------------- the frame

function legend() {
  const { plan, by } = state;
  const list = plan.words[by === "kind" ? "kinds" : by === "layer" ? "layers" : "lifetimes"];
  const dark = theme().dark;
  const sums = new Float64Array(list.length);
  for (let b = 0; b < plan.count; b += 1) if (plan.buffers.space[b] === state.view.space) sums[plan.buffers[by][b]] += plan.buffers.size[b];
  const order = [...list.keys()].filter((k) => sums[k] > 0).sort((a, b) => sums[b] - sums[a]).slice(0, 18);
  byId("legend").replaceChildren(...order.map((k) =>
    element("button", { type: "button", "aria-pressed": String(state.only === k), click: () => {
      state.only = state.only === k ? null : k;
      legend();
      live();
      arena.later();
    } }, swatch(css(colourOf(list[k], k, by, dark))), words(list[k]))));
}

function show(plan, which = largest(plan)) {
  state.plan = plan;
  state.view = new Viewport(plan, which);
  state.only = null;
  if (plan.buffers.space[state.chosen] !== which) state.chosen = -1;
  byId("step").max = Math.max(plan.levels - 1, 0);
  byId("spaces").hidden = plan.spaces.length < 2;
  byId("spaces").replaceChildren(...plan.spaces.map((one, k) =>
    element("button", { type: "button", "aria-pressed": String(k === which), click: () => {
      state.chosen = -1;
      show(plan, k);
      choose(-1);
    } }, `${one.name} · ${size(one.size)}`)));
  byId("versions").hidden = given.shown.length < 2;
  byId("versions").replaceChildren(...given.shown.map(([k, name]) =>
    element("button", { type: "button", "aria-pressed": String(plans[k] === plan), click: () => other(plans[k]) }, name)));
  figures();
  certificate();
  legend();
  peak();
  search(byId("search").value);
  byId("found").hidden = true;
  go(space()?.peak ?? 0);
}

/** The plan whose button stands behind that of the plan that is shown. */
function next() {
  const at = given.shown.findIndex(([k]) => plans[k] === state.plan);
  return plans[given.shown[(at + 1) % given.shown.length][0]];
}

/** A table of entry points; the name of each shows its plan. */
function entryPoints() {
  const { entry_points: found } = given;
  if (!found) return;
  byId("entry-points").hidden = false;
  const head = ["entry point", "purpose", "batch", "bytes", "persistent", "held for others", "transient", "lower bound", "gap", "proof", "adds"];
  byId("entry-points-table").tHead.replaceChildren(element("tr", {}, ...head.map((name, k) =>
    element("th", { scope: "col", class: k > 1 && k !== 9 ? "number" : null }, name))));
  byId("entry-points-table").tBodies[0].replaceChildren(...found.rows.map((row) => {
    const shown = given.shown.find(([, name]) => name === row.name)[0];
    const figures = [row.arena_bytes, row.persistent_bytes, row.held_bytes, row.transient_bytes, row.lower_bound, row.gap_bytes];
    return element("tr", {}, element("th", { scope: "row" }, element("button", { type: "button", click: () => {
      other(plans[shown]);
      byId("arena").scrollIntoView({ block: "center" });
    } }, row.name), row.decides ? element("small", {}, " decides the arena") : null),
    element("td", {}, row.purpose), element("td", { class: "number" }, row.batch === null ? "–" : count(row.batch)),
    ...figures.map((bytes) => element("td", { class: "number" }, count(bytes))),
    element("td", {}, row.proof ?? "–"), element("td", { class: "number" }, count(row.added_bytes)));
  }));
  byId("entry-points-notes").replaceChildren(...found.notes.map((note) => element("li", {}, note)));
}

/** The entry points that came, went or grew, and the persistent values that have another place. */
function entryPointChanges(found) {
  const bytes = (one) => (one === null ? "–" : count(one));
  const place = (one) => (one === null ? "–" : `${count(one[1])} in ${one[0]}`);
  const table = (head, rows) => element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((name, k) => element("th", { scope: "col", class: k ? "number" : null }, name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell, k) => element("td", { class: k ? "number" : "name" }, cell)))))));
  const points = found.entry_points.map(([name, before, after]) =>
    [name, bytes(before), bytes(after), before === null ? "new" : after === null ? "gone" : signed(after - before)]);
  const moves = found.moves.slice(0, MOST_ROWS).map(([name, before, after, n]) => [name, place(before), place(after), count(n)]);
  byId("change-entry-points").replaceChildren(
    element("h3", {}, "Entry points"), table(["entry point", "before", "after", "growth"], points),
    element("h3", {}, moves.length ? `${count(found.moves.length)} persistent values have another place` : "Every persistent value lies where it was"),
    ...(moves.length ? [table(["persistent", "offset before", "after", "bytes"], moves)] : []));
}

/** The other plan, with the same buffer chosen where it has one of the same name. */
function other(plan) {
  const name = state.chosen < 0 ? null : state.plan.label(state.chosen);
  state.chosen = -1;
  show(plan);
  choose(name === null ? -1 : plan.named(name));
}

function change() {
  const { change: found } = given;
  if (!found) return;
  byId("change").hidden = false;
  const growth = found.after - found.before;
  const share = found.before ? ` (${growth < 0 ? "−" : "+"}${percent(Math.abs(growth) / found.before)})` : "";
  byId("change-lead").replaceChildren(
    ...(growth === 0
      ? ["The arenas take as much as before, ", element("b", {}, size(found.after)), ". "]
      : ["The arenas take ", element("b", { class: growth > 0 ? "more" : "less" }, `${size(Math.abs(growth))} ${growth > 0 ? "more" : "less"}`), `${share}: ${count(found.before)} bytes before, ${count(found.after)} now. `]),
    `The lower bound went from ${size(found.bounds[0])} to ${size(found.bounds[1])}, the steps from ${count(found.steps[0])} to ${count(found.steps[1])}. `,
    ...found.arenas.filter((one) => found.arenas.length > 1 || one.step_before !== one.step_after).map((one) =>
      `${one.name}: ${size(one.before)} → ${size(one.after)}; the peak was at ${one.step_before ?? "no step"} and is at ${one.step_after ?? "no step"}. `),
    found.entry_points ? "" : found.same_graph ? "Both plans are for the same graph." : "The plans are for different graphs.",
  );
  byId("overlay-key").replaceChildren(
    element("span", {}, "– – before"), element("span", {}, element("b", { class: "less" }, "—"), " after"),
    element("span", {}, "thin lines: the arenas; from left to right: one iteration, from its beginning to its end"));
  for (const button of byId("change-by").children) {
    button.addEventListener("click", () => {
      state.changeBy = button.dataset.by;
      changeTable();
    });
  }
  changeTable();
  if (found.options.length) {
    const list = element("dl", { class: "pairs" });
    pairs(list, found.options.map(([name, before, after]) => [name, `${before} → ${after}`]));
    byId("change-options").replaceChildren(element("h3", {}, "Options that differ"), list);
  }
  if (found.entry_points) entryPointChanges(found);
}

function changeTable() {
  const { change: found } = given;
  for (const button of byId("change-by").children) button.setAttribute("aria-pressed", String(button.dataset.by === state.changeBy));
  const idle = ["idle at the peak", ...found.idle];
  const rows = [...found.groups[state.changeBy], ...(found.idle[0] !== found.idle[1] ? [idle] : [])];
  const most = Math.max(...rows.map(([, a, b]) => Math.abs(b - a)), 1);
  const more = rows.reduce((sum, [, a, b]) => sum + Math.max(b - a, 0), 0);
  const less = rows.reduce((sum, [, a, b]) => sum + Math.min(b - a, 0), 0);
  byId("change-sum").textContent = more && less ? `${signed(more)} and ${size(less)} make ${signed(more + less)}` : signed(more + less);
  byId("change-table").tHead.replaceChildren(element("tr", {}, ...[state.changeBy, "before", "after", "growth", ""].map((name, k) =>
    element("th", { scope: "col", class: k > 0 && k < 4 ? "number" : null }, name))));
  byId("change-table").tBodies[0].replaceChildren(...rows.slice(0, MOST_ROWS).map(([name, a, b]) => {
    const pair = element("div", { class: "both", "aria-hidden": "true" }, element("i"), element("i"));
    pair.style.setProperty("--left", `${(100 * Math.max(a - b, 0)) / most}%`);
    pair.style.setProperty("--right", `${(100 * Math.max(b - a, 0)) / most}%`);
    const label = state.changeBy === "operand" && name !== idle[0]
      ? element("button", { type: "button", click: () => {
        const plan = plans.find((one) => one.named(name) >= 0);
        if (!plan) return;
        if (plan !== state.plan) show(plan);
        choose(plan.named(name));
        byId("arena").scrollIntoView({ block: "center" });
      } }, name)
      : state.changeBy === "operand" ? name : words(name);
    return element("tr", {}, element("td", { class: "name" }, label), element("td", { class: "number" }, count(a)), element("td", { class: "number" }, count(b)),
      element("td", { class: `number ${b > a ? "more" : "less"}` }, signed(b - a)), element("td", {}, pair));
  }));
}

// --------------------------------------------------------------------------------- pointer, wheel, keys

function pictures() {
  const canvas = byId("arena");
  const tip = byId("tip");
  let drag = null;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const under = (event) => {
    const [x, y] = place(event);
    const level = Math.floor(arena.levelAt(x));
    return [state.plan.at(state.view.space, level, Math.floor(arena.offsetAt(y))), level];
  };
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const plot = arena.plot(arena.picture);
    if (drag) {
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      if (!drag.moved && Math.hypot(dx, dy) < 4) return;
      drag = { x: event.clientX, y: event.clientY, moved: true };
      canvas.classList.add("moving");
      const { view } = state;
      view.move((-dx / plot.width) * (view.right - view.left), (dy / plot.height) * (view.high - view.low));
      tip.hidden = true;
      arena.later();
      return;
    }
    const [b, level] = under(event);
    tip.hidden = b < 0;
    if (b < 0) return;
    const { plan } = state;
    tip.replaceChildren(element("b", {}, plan.label(b)),
      `${words(plan.kind(b))} · ${plan.type(b)} · ${size(plan.buffers.size[b])}`, element("br"),
      `offset ${count(plan.buffers.offset[b])} · ${plan.unit}s ${count(plan.buffers.start[b])}–${count(plan.buffers.end[b] - 1)} · here ${count(level)}`);
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - box.width - 8)}px`;
    tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18}px`;
  });
  canvas.addEventListener("pointerup", (event) => {
    canvas.classList.remove("moving");
    if (drag && !drag.moved) {
      const [b, level] = under(event);
      choose(b, Math.min(Math.max(level, 0), state.plan.levels - 1));
    }
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => {
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
  });
  canvas.addEventListener("dblclick", (event) => {
    const [b] = under(event);
    if (b >= 0) state.view.around(b);
    arena.later();
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    const [x, y] = place(event);
    const turn = event.deltaY || event.deltaX;
    state.view.zoom(1.0016 ** turn, arena.levelAt(x), arena.offsetAt(y), !event.altKey, !event.shiftKey);
    arena.later();
  }, { passive: false });
  const pick = (event) => {
    const box = byId("memory").getBoundingClientRect();
    go(Math.floor(arena.levelAt(event.clientX - box.left)));
  };
  byId("memory").addEventListener("pointerdown", (event) => {
    byId("memory").setPointerCapture(event.pointerId);
    pick(event);
  });
  byId("memory").addEventListener("pointermove", (event) => event.buttons && pick(event));
}

function zoomed(factor) {
  const { view, plan, chosen, level } = state;
  const middle = chosen < 0 ? 0 : plan.buffers.offset[chosen] + plan.buffers.size[chosen] / 2;
  // Around what is chosen, as long as it is in the picture.
  const seen = chosen >= 0 && view.left <= level && level < view.right && view.low <= middle && middle < view.high;
  view.zoom(factor, seen ? level + 0.5 : (view.left + view.right) / 2, seen ? middle : (view.low + view.high) / 2);
  byId("tip").hidden = true;
  arena.later();
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.target.closest?.("dialog")) return;
  const typing = event.target.matches?.('input[type="search"], select');
  if (event.key === "Escape") {
    byId("found").hidden = true;
    byId("search").value = "";
    search("");
    choose(-1);
    return;
  }
  if (typing) return;
  const { view } = state;
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  const inPicture = document.activeElement === byId("arena");
  if (event.key in moves && inPicture) {
    const [levels, bytes] = moves[event.key];
    view.move(levels * Math.max((view.right - view.left) / 12, 1), bytes * ((view.high - view.low) / 12));
    arena.later();
  } else if (event.key in moves && document.activeElement === byId("memory") && moves[event.key][0]) {
    go(state.level + moves[event.key][0]);
  } else {
    const actions = {
      "+": () => zoomed(0.6), "=": () => zoomed(0.6), "-": () => zoomed(1 / 0.6), 0: () => (view.fit(), arena.later()),
      "[": () => go(state.level - 1), "]": () => go(state.level + 1), p: () => go(space().peak), n: () => beside(1), b: () => beside(-1),
      "/": () => byId("search").focus(), "?": () => byId("help").showModal(), t: () => turn(), o: () => given.shown.length > 1 && other(next()),
    };
    const act = event.key === "Enter" && inPicture && state.chosen >= 0 ? () => (view.around(state.chosen), arena.later()) : actions[event.key];
    if (!act) return;
    act();
  }
  event.preventDefault();
}

/** Light or dark, from the reader's settings until the button is pressed. */
const darkness = matchMedia("(prefers-color-scheme: dark)");
let fixed = null;
let paper = false; // which is white, whatever the screen is
function colours() {
  document.documentElement.dataset.theme = paper ? "light" : fixed ?? (darkness.matches ? "dark" : "light");
  if (!state.plan.spaces.length) return;
  legend();
  peak();
  live();
  arena.later();
  overlay?.later();
}
function turn() {
  fixed = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  colours();
}

function start() {
  document.documentElement.dataset.theme = darkness.matches ? "dark" : "light";
  if (!state.plan.spaces.length) throw new Error("The plan has no memory to show.");
  byId("title").textContent = state.plan.graph;
  byId("zoom-in").addEventListener("click", () => zoomed(0.6));
  byId("zoom-out").addEventListener("click", () => zoomed(1 / 0.6));
  byId("zoom-fit").addEventListener("click", () => {
    state.view.fit();
    arena.later();
  });
  byId("colour").addEventListener("change", (event) => {
    state.by = event.target.value;
    state.only = null;
    legend();
    live();
    arena.later();
  });
  byId("search").addEventListener("input", (event) => search(event.target.value));
  byId("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") byId("found").querySelector("button")?.click();
    if (event.key === "ArrowDown") byId("found").querySelector("button")?.focus();
  });
  document.addEventListener("pointerdown", (event) => {
    if (!event.target.closest(".search")) byId("found").hidden = true;
  });
  byId("step").addEventListener("input", (event) => go(Number(event.target.value)));
  byId("step-back").addEventListener("click", () => go(state.level - 1));
  byId("step-on").addEventListener("click", () => go(state.level + 1));
  byId("step-peak").addEventListener("click", () => go(space().peak));
  byId("live-more").addEventListener("click", () => {
    state.rows = Infinity;
    live();
  });
  byId("theme").addEventListener("click", turn);
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  document.addEventListener("keydown", keys);
  darkness.addEventListener("change", () => colours());
  window.addEventListener("beforeprint", () => {
    paper = true;
    colours();
    arena.picture.now();
    arena.memory.now();
    overlay?.now();
  });
  window.addEventListener("afterprint", () => {
    paper = false;
    colours();
  });
  pictures();
  change();
  entryPoints();
  show(state.plan);
}

try {
  start();
} catch (error) {
  byId("broken").hidden = false;
  byId("broken").textContent = `This plan cannot be drawn: ${error.message}`;
}
