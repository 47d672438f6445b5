// The page: what is chosen goes to the service, its progress and its answer come here.

import { ProblemError, Service } from "./service.js";

const at = (id) => document.getElementById(id);
const bytes = (count) => count.toLocaleString("en-US");
/** 21,613,184 as "20.6 MiB", the unit in which the report has it; nothing below 1 KiB. */
const inUnits = (count) => {
  const power = Math.min(Math.floor(Math.log2(Math.max(count, 1)) / 10), 4);
  const size = count / 2 ** (10 * power);
  return power ? ` (${size.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)} ${["KiB", "MiB", "GiB", "TiB"][power - 1]})` : "";
};
const both = (count) => `${bytes(count)}${inUnits(count)}`;
const sized = (count) => `${bytes(count)} bytes${inUnits(count)}`;
const show = (...ids) => {
  for (const id of ["working", "failed", "done"]) at(id).hidden = !ids.includes(id);
};

/** Larger graphs are stored first, and jobs refer to them. */
const INLINE_BYTES = 1 << 20;
/** What says that this service keeps no jobs, or none for who asks. */
const NO_JOBS = new Set(["jobs-off", "database-unavailable", "not-found", "method-not-allowed", "forbidden"]);
const CHOICES = ["loss", "optimizer", "trainable"];
const OPTIONS = ["capacity", "target", "solver"];

let network = null; // { name, blob, kind: "graph", "program" or "model" }
let plan = null; // the last plan
let stop = null; // ends what runs

// ------------------------------------------------------------------------------------------ choosing

async function choose(name, blob) {
  const head = new Uint8Array(await blob.slice(0, 8).arrayBuffer());
  const model = !name.endsWith(".json") && !/^\s*[{[]/.test(new TextDecoder().decode(head));
  let kind = "model";
  if (!model) kind = (await isProgram(blob)) ? "program" : "graph";
  network = { name, blob, kind };
  at("chosen").textContent = `${name}, ${sized(blob.size)}`;
  at("training").hidden = !model;
  at("target").disabled = kind === "program";
  at("stage").textContent = `${name} is chosen.`;
  show();
}

async function isProgram(blob) {
  try {
    return JSON.parse(await blob.text()).format === "arenaplan.program";
  } catch {
    return false; // the service says what is wrong with it
  }
}

at("file").addEventListener("change", ({ target }) => {
  if (target.files.length) choose(target.files[0].name, target.files[0]);
});
for (const kind of ["dragover", "dragleave", "drop"]) {
  at("drop").addEventListener(kind, (event) => {
    event.preventDefault();
    at("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files.length)
      choose(event.dataTransfer.files[0].name, event.dataTransfer.files[0]);
  });
}
at("example").addEventListener("click", async () => {
  try {
    const response = await fetch("page/mnist.json");
    const { graph } = await response.json();
    await choose("mnist.json", new Blob([JSON.stringify(graph)], { type: "application/json" }));
    at("plan").focus();
  } catch (error) {
    failed(error);
  }
});

at("measures").addEventListener("change", ({ target }) => {
  at("only").hidden = target.value !== "only";
});

function options() {
  const given = {};
  for (const name of OPTIONS) if (!at(name).disabled && at(name).value.trim()) given[name] = at(name).value.trim();
  const batch = at("batch").value.trim();
  if (batch) given.batch = /^\d+$/.test(batch) ? Number(batch) : batch;
  if (at("rewrite").checked) given.rewrite = true;
  if (at("measures").value === "as_written") given.as_written = true;
  if (at("measures").value === "only")
    given.only = [...document.querySelectorAll("#only :checked")].map((one) => one.value).join(",");
  if (network.kind !== "model") return given;
  for (const name of CHOICES) if (at(name).value.trim()) given[name] = at(name).value.trim();
  const dims = at("dim").value.split(/[\s,]+/).filter(Boolean);
  if (dims.length) given.dim = dims;
  return given;
}

// ------------------------------------------------------------------------------------------ planning

at("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!network) {
    at("stage").textContent = "Choose a network first.";
    at("file").focus();
    return;
  }
  for (const one of document.querySelectorAll("[aria-invalid]")) one.removeAttribute("aria-invalid");
  const service = new Service({ key: at("key").value.trim() });
  stop = new AbortController();
  at("plan").disabled = true;
  at("cancel").hidden = false;
  at("bar").removeAttribute("value");
  at("stage").textContent = "sending";
  const began = performance.now();
  const clock = setInterval(() => {
    at("elapsed").textContent = `${Math.round((performance.now() - began) / 1000)} s`;
  }, 1000);
  at("elapsed").textContent = "";
  show("working");
  try {
    succeeded(await answer(service, options(), stop.signal));
  } catch (error) {
    if (!stop.signal.aborted) return failed(await inTheFile(service, error));
    at("stage").textContent = "Cancelled.";
    show();
  } finally {
    clearInterval(clock);
    at("plan").disabled = false;
    at("cancel").hidden = true;
  }
});
at("cancel").addEventListener("click", () => stop?.abort());

/**
 * A request holds the file inside of it, so lines and columns are not those of the file. A file that is not JSON is
 * therefore sent again by itself, and what is said of it is shown.
 */
async function inTheFile(service, error) {
  if (!(error instanceof ProblemError) || error.code !== "invalid-json") return error;
  const headers = { "Content-Type": "application/json" };
  return service.ask("POST", "/v1/plan", network.blob, { headers }).then(() => error, (other) => (other.code === error.code ? other : error));
}

/** The plan, by a job where the service keeps some, else at once. */
async function answer(service, given, signal) {
  try {
    const job = await submit(service, given, signal);
    return await followed(service, job, signal);
  } catch (error) {
    if (!(error instanceof ProblemError) || !NO_JOBS.has(error.code)) throw error;
  }
  at("stage").textContent = "planning";
  if (network.kind === "model") return service.ask("POST", "/v1/plan", network.blob, { query: given, signal });
  const body = new Blob([`{"${network.kind}":`, network.blob, `,"options":${JSON.stringify(given)}}`]);
  const headers = { "Content-Type": "application/json" };
  return service.ask("POST", network.kind === "program" ? "/v1/program" : "/v1/plan", body, { headers, signal });
}

async function submit(service, given, signal) {
  const task = network.kind === "program" ? "program" : "plan";
  const key = [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("");
  const headers = { "Idempotency-Key": key, "Content-Type": "application/json" };
  if (network.kind !== "model" && network.blob.size <= INLINE_BYTES) {
    const inside = [`{"task":"${task}","request":{"${network.kind}":`, network.blob];
    const body = new Blob([...inside, `,"options":${JSON.stringify(given)}}}`]);
    return service.ask("POST", "/v1/jobs", body, { headers, signal });
  }
  // Digests are made by pages from secure origins alone; others plan at once, without a job.
  if (!crypto.subtle) throw new ProblemError({ type: "/problems/jobs-off" }, 0);
  const found = await crypto.subtle.digest("SHA-256", await network.blob.arrayBuffer());
  const digest = [...new Uint8Array(found)].map((one) => one.toString(16).padStart(2, "0")).join("");
  const type = network.kind === "model" ? "application/octet-stream" : "application/json";
  await service.ask("PUT", `/v1/graphs/${digest}`, network.blob, { headers: { "Content-Type": type }, signal });
  const body = { task, graph: digest, request: { options: given } };
  return service.ask("POST", "/v1/jobs", body, { headers, signal });
}

/** The result of a job; connections that break are made again. */
async function followed(service, job, signal) {
  signal.addEventListener("abort", () => service.ask("DELETE", `/v1/jobs/${job.id}`).catch(() => {}));
  const headers = {};
  let broken = 0;
  while (broken < 8) {
    try {
      for await (const event of service.stream("GET", `/v1/jobs/${job.id}/events`, undefined, { headers, signal })) {
        headers["Last-Event-ID"] = event.id;
        broken = 0;
        tell(event.data);
        if (event.kind !== "end") continue;
        if (event.data.error) throw new ProblemError(event.data.error, event.data.error.status);
        return await service.ask("GET", `/v1/jobs/${job.id}/result`, undefined, { signal });
      }
    } catch (error) {
      if (signal.aborted || error instanceof ProblemError) throw error;
    }
    broken += 1;
    await new Promise((done) => setTimeout(done, 250 * 2 ** broken));
  }
  throw new Error("The service does not answer any more. The job goes on there.");
}

function tell({ state, progress }) {
  const parts = [progress?.stage ?? state];
  if (progress?.peak_bytes != null) parts.push(`${sized(progress.peak_bytes)} so far`);
  if (progress?.bound_bytes != null) parts.push(`at least ${sized(progress.bound_bytes)}`);
  if (progress?.extra_nanoseconds != null && progress.step_nanoseconds) {
    const share = (part) => `${(100 * part / progress.step_nanoseconds).toFixed(2)} %`;
    parts.push(`+${share(progress.extra_nanoseconds)} of time, at least ${share(progress.bound_nanoseconds)}`);
  }
  if (progress?.moved_bytes != null) parts.push(`${sized(progress.moved_bytes)} moved`);
  at("stage").textContent = parts.join(", ");
  if (progress?.done != null) at("bar").value = progress.done;
}

// ------------------------------------------------------------------------------------------ answering

function row(texts) {
  const line = document.createElement("tr");
  texts.forEach((text, k) => {
    const cell = line.appendChild(document.createElement(k ? "td" : "th"));
    if (!k) cell.scope = "row";
    cell.textContent = text;
  });
  return line;
}

function succeeded(answered) {
  plan = answered;
  const arenas = plan.spaces.map(([name, , , size, certificate]) => ({ name, size, ...certificate }));
  const total = arenas.reduce((sum, arena) => sum + arena.size, 0);
  const optimal = arenas.every((arena) => arena.status === "optimal");
  at("stage").textContent = "";
  at("size").textContent = `${plan.graph}: ${sized(total)}`;
  at("proof").textContent = optimal
    ? "Proved: nothing smaller is possible for this order of the steps."
    : "The best that was found; the lower bound says how far from it an optimum can be.";
  const taken = [...document.querySelectorAll("#only label")].filter((one) => plan.options[one.control.value]);
  at("taken").textContent = taken.length
    ? `Measures: ${taken.map((one) => one.textContent.trim()).join("; ")}. The report says what they cost.`
    : "";
  at("arenas").tBodies[0].replaceChildren(
    ...arenas.map(({ name, size, lower_bound: bound, status, proof, solver }) =>
      row([name, both(size), bytes(bound), `${(bound ? (100 * (size - bound)) / bound : 0).toFixed(2)} %`, status, proof ?? "-", solver]),
    ),
  );
  at("digest").textContent = plan.digest;
  // A link cannot say who asks; with a key, the report is saved.
  at("report").hidden = at("key").value.trim() !== "";
  at("report").href = `plans/${plan.digest}`;
  show("done");
  at("done").focus();
}

/** Text into an element, with what stands between backticks as code, and units beside bytes. */
function write(element, text) {
  const withUnits = text.replace(/(\d[\d,]*) bytes\b(?! \()/g, (_, count) => sized(Number(count.replaceAll(",", ""))));
  element.replaceChildren(
    ...withUnits.split("`").map((part, k) => (k % 2 ? Object.assign(document.createElement("code"), { textContent: part }) : part)),
  );
}

/** Where the culprit is, in the words of somebody who sees the file, or the field of the form that has it. */
function locate(pointer) {
  const [, , inside, option] = /^(\/request)?\/(?:(?:graph|program)(\/.*)|(?:options|query)\/(\w+))/.exec(pointer ?? "") ?? [];
  const field = at(option);
  field?.setAttribute("aria-invalid", "true");
  if (field?.closest("details")) field.closest("details").open = true;
  return inside ? `In ${network.name}: ${inside}` : "";
}

function failed(error) {
  const { title, detail, remedy, pointer, live_at_peak: live = [] } = error instanceof ProblemError ? error.document : {};
  at("stage").textContent = "";
  at("title").textContent = title ?? "That did not work";
  write(at("detail"), detail ?? error.message);
  at("where").textContent = locate(pointer);
  write(at("remedy"), remedy ?? "");
  at("live").hidden = !live.length;
  at("live").tBodies[0].replaceChildren(...live.slice(0, 12).map((one) => row([one.operand, both(one.bytes)])));
  show("failed");
  if (error.status === 401) at("access").open = true;
  at("failed").focus();
}

at("save").addEventListener("click", async () => {
  const format = at("format").value;
  const suffix = {
    "": ".json", report: ".html", "c-header": ".h", "c-training": ".zip", "offsets-csv": ".csv",
    perfetto: ".trace.json", "memory-viz": ".pickle",
  };
  try {
    let blob = new Blob([JSON.stringify(plan)], { type: "application/json" });
    if (format) {
      const service = new Service({ key: at("key").value.trim() });
      const path = `/v1/plans/${plan.digest}/${format}`;
      blob = await (await service.fetch("GET", path)).blob();
    }
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob) });
    link.download = `${plan.graph}${suffix[format]}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  } catch (error) {
    failed(error);
  }
});
