// Written by `./run schema` from the OpenAPI document of the service; changes belong there.
import { Options, Service, ServerEvent } from "./service.js";

export class Client extends Service {
  plan(body: PlanRequest | Blob | ArrayBuffer, options?: Options): Promise<PlanDocument | DeploymentDocument | JobDocument>;
  planProgram(body: ProgramRequest, options?: Options): Promise<PlanDocument | JobDocument>;
  getPlan(digest: string, options?: Options<{ entry_point?: string | null }>): Promise<PlanDocument | DeploymentDocument>;
  exportPlan(digest: string, format: string, options?: Options<{ against?: string | null; entry_point?: string | null; weights?: string | null }>): Promise<any>;
  tradeoff(body: TradeOffRequest | Blob | ArrayBuffer, options?: Options): Promise<TradeOffDocument | JobDocument>;
  explain(body: ExplainRequest | Blob | ArrayBuffer, options?: Options): Promise<VerdictDocument | JobDocument>;
  validate(body: ValidateRequest | Blob | ArrayBuffer, options?: Options): Promise<ReportDocument | JobDocument>;
  placeBuffers(body: LayoutRequest, options?: Options): Promise<LayoutDocument | JobDocument>;
  getLayout(digest: string, options?: Options): Promise<LayoutDocument>;
  submitJob(body: JobRequest, options?: Options): Promise<JobDocument>;
  listJobs(options?: Options<{ state?: State | null; limit?: number; after?: string | null }>): Promise<JobsDocument>;
  getJob(id: string, options?: Options): Promise<JobDocument>;
  cancelJob(id: string, options?: Options): Promise<JobDocument>;
  getJobResult(id: string, options?: Options): Promise<Record<string, unknown>>;
  streamJobEvents(id: string, options?: Options): AsyncGenerator<ServerEvent>;
  storeGraph(digest: string, body: Blob | ArrayBuffer, options?: Options): Promise<any>;
  getGraph(digest: string, options?: Options): Promise<any>;
  deleteGraph(digest: string, options?: Options): Promise<any>;
  listSchemas(options?: Options): Promise<Record<string, Array<string>>>;
  getSchema(name: string, options?: Options): Promise<Record<string, unknown>>;
}

/** How a step uses the bytes of a value. */
export type Access = "read" | "write" | "update" | "scratch";

export type AliasOfPlan = [number, number, number, boolean, number];

/** A combination of measures that does not fit the capacity. */
export interface AttemptOfVerdict {
  measures: Array<string>;
  changes: "nothing" | "rounding" | "training";
  arena_bytes: number;
  excess: number;
  proved: boolean;
}

/** A block of memory: a number of bytes, or a shape with a dtype. Version 2 has views. */
export interface BlockDocument {
  name: string;
  bytes?: number | null;
  shape?: Array<number> | null;
  dtype?: "float32" | "float64" | "int32" | "int64" | "int8" | "uint8" | "bool" | null;
  fed?: boolean;
  kept?: boolean;
  view?: ViewDocument | null;
}

/** `size` bytes during steps ``[start, end)``; an `offset` pins it. */
export interface BufferDocument {
  id: string;
  size: number;
  start: number;
  end: number;
  alignment?: number;
  offset?: number | null;
  gaps?: Array<GapDocument>;
  reads?: number;
  writes?: number;
  memory?: string | null;
}

/** `size` bytes at `offset` during steps ``[start, end)``. */
export interface BufferOfLayout {
  id: string;
  size: number;
  start: number;
  end: number;
  alignment?: number;
  pinned?: boolean;
  offset: number;
  gaps?: Array<GapDocument>;
  reads?: number;
  writes?: number;
  memory?: string | null;
  home?: number | null;
}

/** Buffers to place in one arena of at most `capacity` bytes. */
export interface BuffersDocument {
  format: "arenaplan.buffers";
  version: 1;
  capacity?: number | null;
  reserved?: Array<ReservedDocument>;
  buffers: Array<BufferDocument>;
}

/** How good an arena is, and why that is known. */
export interface CertificateOfPlan {
  status: "optimal" | "feasible" | "infeasible" | "unknown";
  proof: "max-load" | "solver" | null;
  lower_bound: number;
  witness_step: number | null;
  solver: string;
}

/** Repetitions take at least `nanoseconds` in every schedule within `budget` bytes whose first runs have */
export interface CostBoundOfPlan {
  budget: number;
  nanoseconds: number;
  order: Array<number>;
  moments: Array<number>;
  denominator: number;
  rows: Array<DualRowOfPlan>;
}

/** How long an operation takes: nanoseconds, or what a roofline makes of its flops and bytes. */
export interface CostOfOperation {
  nanoseconds?: number | null;
  flops?: number;
  bytes?: number | null;
}

/** Whole nanoseconds by the label of a step, or by the id of an operation for its other steps. */
export interface CostsFields {
  about?: string;
  nanoseconds: Record<string, unknown>;
}

/** How far the webhook of a job is. */
export interface Delivery {
  state: "pending" | "delivered" | "failed";
  attempts: number;
  failure: string | null;
}

/** Memory plans of several programs that run in the same memory, one at a time. */
export interface DeploymentDocument {
  format: "arenaplan.plan";
  version: 3;
  digest: string;
  producer: string;
  name: string;
  entry_points: Array<EntryPointOfDeployment>;
  persistent: Array<PersistentOfDeployment>;
}

export type DualRowOfPlan = [RowKind, number, number, number, number, number, Array<number>];

/** Where the contents of a value come from when an iteration begins. */
export type EntryKind = "fed" | "constant" | "carried" | "held";

export type EntryOfPlan = [number, EntryKind, number];

/** One program that runs in the memory of the deployment, by the name under which it is called. */
export interface EntryPointOfDeployment {
  name: string;
  model: string;
  purpose: "train" | "infer" | "evaluate" | "run";
  plan: PlanDocument;
}

/** A program of one of the models, which runs in the memory that all entry points share. */
export interface EntryPointRequest {
  purpose: "train" | "infer" | "evaluate" | "run";
  model?: string;
  batch?: number | null;
  name?: string;
  graph?: GraphDocument | null;
}

export type ExitOfPlan = [number, number];

/** A network, and among the options the capacity that it is to fit. */
export interface ExplainRequest {
  graph: GraphDocument | ProgramDocument;
  options: PlanRequestOptions;
  training?: boolean;
  scores?: Record<string, number> | "bytes" | null;
}

export type FloatsOfPlan = [number, Array<number | "NaN" | "Infinity" | "-Infinity">];

export type FormOfPlan = [Phase, string, boolean, Array<SlotOfPlan>];

/** During steps ``[start, end)`` it holds bytes ``[low, high)`` alone; none where the two are equal. */
export interface GapDocument {
  start: number;
  end: number;
  low?: number;
  high?: number;
}

/** A graph: operands, operations in any order, loss, optimizer, trainable set. */
export interface GraphDocument {
  format: "arenaplan.graph";
  version: 1;
  name: string;
  batch?: number | null;
  dims?: Record<string, unknown>;
  operands: Array<OperandDocument>;
  operations: Array<OperationDocument>;
  loss?: string;
  optimizer?: OptimizerDocument | null;
  training?: TrainingDocument;
  trainable?: "all" | Array<string> | { last: number };
  outputs?: Array<string>;
}

export type HoldOfPlan = [number, number, number];

/** Accesses take at least `nanoseconds` in every choice of homes within the capacities: the */
export interface HomeBoundOfPlan {
  nanoseconds: number;
  denominator: number;
  rows: Array<HomeRowOfPlan>;
}

export type HomeRowOfLayout = [number, number, number];

export type HomeRowOfPlan = [number, number, number];

/** Nanoseconds that all accesses take, and at least in every choice of homes: `bound`, of which `checked` */
export interface HomesOfLayout {
  accesses: number;
  bound: number;
  checked: number;
  denominator: number;
  rows: Array<HomeRowOfLayout>;
  memories: Array<PeakOfMemory>;
}

export type InitialOfPlan = [number, string, number | "NaN" | "Infinity" | "-Infinity", number, number, string, string];

export type InitialRowsOfPlan = [number, number, number, number];

/** `values` is flat and in C order; `base64` holds the same elements as raw little-endian bytes. */
export interface InitializerDocument {
  kind: "zeros" | "ones" | "constant" | "normal" | "uniform" | "he_normal" | "glorot_uniform" | "values" | "file" | "band" | "iota";
  value?: number | "NaN" | "Infinity" | "-Infinity" | null;
  scale?: number | null;
  seed?: number | null;
  values?: Array<unknown> | null;
  base64?: string | null;
  file?: string | null;
  offset?: number | null;
  bytes?: number | null;
  sha256?: string | null;
  step?: number | null;
  other?: number | "NaN" | "Infinity" | "-Infinity" | null;
  lower?: number | null;
  upper?: number | null;
  axes?: Array<number> | null;
}

/** A job: what it is, and how far. */
export interface JobDocument {
  id: string;
  task: "plan" | "program" | "layout" | "tradeoff" | "explain" | "validate" | "import";
  state: "queued" | "running" | "succeeded" | "failed" | "cancelled";
  created: string;
  started: string | null;
  finished: string | null;
  attempts: number;
  progress: Progress | null;
  error: ProblemDocument | null;
  webhook: Delivery | null;
  links: JobLinks;
}

/** Paths of what belongs to a job. */
export interface JobLinks {
  self: string;
  result: string;
  events: string;
}

/** Work that outlives the request. The synchronous route of the task describes `request`. */
export interface JobRequest {
  task: "plan" | "program" | "layout" | "tradeoff" | "explain" | "validate" | "import";
  request?: Record<string, unknown> | null;
  graph?: string | null;
  options?: Record<string, unknown> | null;
  webhook?: Webhook | null;
}

/** A page of jobs, the newest first. */
export interface JobsDocument {
  jobs: Array<JobDocument>;
  next: string | null;
}

export type KernelOfPlan = [string, Record<string, unknown>, Array<Array<number> | null>, Array<FloatsOfPlan>, number];

/** The purpose of a value. Reports group by it. */
export type Kind = "input" | "label" | "parameter" | "state" | "constant" | "activation" | "loss" | "derivative" | "partial" | "gradient" | "optimizer_variable" | "saved" | "scratch" | "result";

export type LabelOfPlan = [number, string];

/** Buffers placed in one arena of `peak` bytes, and how good that is. */
export interface LayoutDocument {
  format: "arenaplan.layout";
  version: 1;
  digest: string;
  options: LayoutOptionFields;
  deterministic: boolean;
  capacity?: number | null;
  peak: number;
  certificate: CertificateOfPlan;
  reserved?: Array<ReservedDocument>;
  buffers: Array<BufferOfLayout>;
  homes?: HomesOfLayout | null;
}

/** Sizes are bytes, or text as 24MiB; what is left out or null is the solver's choice. */
export interface LayoutOptionFields {
  solver?: string;
  capacity?: number | string | null;
  alignment?: number | null;
  deadline_seconds?: number | null;
  work?: number | null;
  seed?: number;
  threads?: number;
  race?: boolean;
  target_gap?: number;
  rules?: RulesOfLayout;
  pins?: Record<string, unknown> | Array<string> | string;
  alignments?: Record<string, unknown> | Array<string> | string;
  reserved?: Array<RangeFields | string> | string;
  memories?: Array<MemoryFields | string>;
  place?: Array<string>;
}

/** The buffers to place, and options. */
export interface LayoutRequest {
  problem: BuffersDocument;
  options?: LayoutRequestOptions | null;
}

/** Options of a layout; all may be left out. */
export interface LayoutRequestOptions {
  solver?: "best-fit" | "branch-and-bound" | "bump" | "cp-sat" | "executorch-greedy" | "first-fit" | "greedy" | "nntrainer-basic" | "nntrainer-v1" | "nntrainer-v3" | "portfolio" | "search" | "skyline" | "tflm-greedy" | "wic";
  capacity?: number | string | null;
  alignment?: 1 | 2 | 4 | 8 | 16 | 32 | 64 | 128 | 256 | 512 | 1024 | 2048 | 4096 | 8192 | 16384 | 32768 | 65536 | 131072 | 262144 | 524288 | 1048576 | null;
  deadline_seconds?: number | null;
  work?: number | null;
  seed?: number;
  threads?: number;
  race?: boolean;
  target_gap?: number;
  rules?: RulesOfLayout;
  pins?: Record<string, unknown> | Array<string> | string;
  alignments?: Record<string, unknown> | Array<string> | string;
  reserved?: Array<RangeFields | string> | string;
  memories?: Array<MemoryFields | string>;
  place?: Array<string>;
  format?: "arenaplan.layout_options";
  version?: 1;
}

/** A value and its bytes. */
export interface LiveValue {
  operand: string;
  bytes: number;
}

/** One memory that kernels reach. Bandwidths are bytes a second; without one, accesses take no time beside */
export interface MemoryFields {
  name: string;
  bytes: number;
  read?: number | null;
  write?: number | null;
  latency?: number;
}

/** A tensor. Shape and dtype of intermediate operands may be left out: they are inferred. */
export interface OperandDocument {
  name: string;
  role: "input" | "label" | "parameter" | "state" | "constant" | "intermediate";
  shape?: Array<number | string> | null;
  dtype?: "float32" | "float64" | "int32" | "int64" | "int8" | "uint8" | "bool" | null;
  trainable?: boolean | null;
  initializer?: InitializerDocument | null;
  storage?: StorageDocument | null;
}

/** An operand and its bytes. */
export interface OperandSize {
  operand: string;
  bytes: number;
}

/** One use of an ONNX operator. An optional input that is left out is the empty string. */
export interface OperationDocument {
  name: string;
  type: string;
  inputs: Array<string>;
  outputs: Array<string>;
  attributes?: Record<string, number | string | Array<number | "NaN" | "Infinity" | "-Infinity">>;
}

export type OperationOfPlan = [string, number, Array<number | null>, Array<number>];

/** A block in `writes` alone is written whole; a block in both lists is updated in place. */
export interface OperationOfProgram {
  name: string;
  type?: string;
  reads?: Array<string>;
  writes?: Array<string>;
  overwrites?: Record<string, unknown>;
  workspace?: number;
  pure?: boolean;
  cost?: CostOfOperation | null;
}

/** An optimizer by name; what it takes beside, the optimizers say. */
export interface OptimizerDocument {
  type: string;
}

/** One of several memories: the peak of its layout, and how good that is. */
export interface PeakOfMemory {
  memory: string;
  peak: number;
  certificate: CertificateOfPlan;
}

export type PersistentOfDeployment = [string, Array<number>];

/** The part of a training iteration that a step belongs to, in nntrainer's words. */
export type Phase = "forward" | "calc_gradient" | "calc_derivative" | "apply_gradient" | "explicit";

/** A memory plan: a training iteration, and a place for each of its values. */
export interface PlanDocument {
  name: string;
  period: number;
  spaces: Array<SpaceOfPlan>;
  types: Array<TypeOfPlan>;
  storages?: Array<StorageOfPlan>;
  kinds: Array<Kind>;
  origins: Array<string>;
  kernels: Array<KernelOfPlan>;
  operations: Array<OperationOfPlan>;
  forms: Array<FormOfPlan>;
  values: Array<ValueOfPlan>;
  labels: Array<LabelOfPlan>;
  aliases: Array<AliasOfPlan>;
  steps: Array<StepOfPlan>;
  entry: Array<EntryOfPlan>;
  exit: Array<ExitOfPlan>;
  initial: Array<InitialOfPlan>;
  initial_rows?: Array<InitialRowsOfPlan>;
  format: "arenaplan.plan";
  version: 2;
  digest: string;
  producer: string;
  graph: string;
  graph_digest: string;
  reference_digest: string;
  options: PlannedOptionFields;
  deterministic: boolean;
  holds: Array<HoldOfPlan>;
  replacements: Array<ReplacementOfPlan>;
  records: Array<RecordOfPlan>;
  cost_bound?: CostBoundOfPlan | null;
  home_bound?: HomeBoundOfPlan | null;
  planned_sizes?: PlannedSizesOfPlan | null;
}

/** A graph to plan, or several models by name; entry points that share their arena; and options. */
export interface PlanRequest {
  graph?: GraphDocument | ProgramDocument;
  models?: Record<string, GraphDocument | ProgramDocument>;
  entries?: Array<EntryPointRequest | string>;
  ties?: Array<string>;
  options?: PlanRequestOptions | null;
  like?: PlanDocument | null;
}

/** Options of a plan; all may be left out. */
export interface PlanRequestOptions {
  as_written?: boolean;
  only?: Array<"in_place" | "sub_ranges" | "order" | "fit_scratch" | "recompute"> | string | null;
  target?: "c" | "nntrainer" | "onert" | "program" | "reference" | "singa" | "singa-relu";
  solver?: "best-fit" | "branch-and-bound" | "bump" | "cp-sat" | "executorch-greedy" | "first-fit" | "greedy" | "nntrainer-basic" | "nntrainer-v1" | "nntrainer-v3" | "portfolio" | "search" | "skyline" | "tflm-greedy" | "wic";
  batch?: number | SizesFields | string | null;
  alignment?: 1 | 2 | 4 | 8 | 16 | 32 | 64 | 128 | 256 | 512 | 1024 | 2048 | 4096 | 8192 | 16384 | 32768 | 65536 | 131072 | 262144 | 524288 | 1048576 | null;
  capacity?: number | string | null;
  deadline_seconds?: number | null;
  scratch_budget?: number | string;
  update?: "end" | "immediate";
  parallelism?: number;
  rewrite?: boolean;
  chunked_head?: boolean;
  tiers?: Array<TierFields | string>;
  memories?: Array<MemoryFields | string>;
  place?: Array<string>;
  costs?: CostsFields | null;
  storage?: string | null;
  frozen_storage?: string | null;
  tile_bytes?: number | string | null;
  pins?: Record<string, unknown> | Array<string> | string;
  alignments?: Record<string, unknown> | Array<string> | string;
  reserved?: Array<RangeFields | string> | string;
  dims?: Record<string, unknown> | null;
  format?: "arenaplan.options";
  version?: 1;
}

/** The options that a plan was made with, exactly: a switch says of each measure whether it was taken. */
export interface PlannedOptionFields {
  target?: string;
  solver?: string;
  batch?: number | null;
  alignment?: number | null;
  capacity?: number | string | null;
  deadline_seconds?: number | null;
  scratch_budget?: number | string;
  update?: string;
  parallelism?: number;
  in_place?: boolean;
  rewrite?: boolean;
  chunked_head?: boolean;
  sub_ranges?: boolean;
  recompute?: boolean;
  order?: boolean;
  tiers?: Array<TierFields | string>;
  memories?: Array<MemoryFields | string>;
  place?: Array<string>;
  costs?: CostsFields | null;
  storage?: string | null;
  frozen_storage?: string | null;
  tile_bytes?: number | string | null;
  fit_scratch?: boolean;
  pins?: Record<string, unknown> | Array<string> | string;
  alignments?: Record<string, unknown> | Array<string> | string;
  reserved?: Array<RangeFields | string> | string;
}

/** The sizes that the plan serves; it was made at the largest. `proved` has those, one for each range, at */
export interface PlannedSizesOfPlan {
  ranges: Array<RangeOfPlan>;
  proved: Array<Array<number>>;
  refused: Array<RefusedOfPlan>;
}

/** One schedule. Sizes are bytes, costs are nanoseconds of modelled time. */
export interface PointOfTradeOff {
  peak: number;
  extra: number;
  bound: number;
  extra_flops: number;
  repeated_steps: number;
}

/** RFC 9457 problem details, with where the culprit is and what to do. */
export interface ProblemDocument {
  type: string;
  title: string;
  status: number;
  detail: string;
  instance?: string | null;
  pointer?: string | null;
  remedy?: string | null;
  required?: number | null;
  available?: number | null;
  excess?: number | null;
  proved?: boolean | null;
  entry_point?: string | null;
  held?: number | null;
  verdict?: ShortVerdict | null;
  live_at_peak?: Array<OperandSize> | null;
  problem?: ProblemDocument | null;
  [name: string]: unknown;
}

/** One training iteration, repeated: blocks, and operations in the order in which they run. */
export interface ProgramDocument {
  format: "arenaplan.program";
  version: 1 | 2 | 3;
  name: string;
  any_order?: boolean;
  blocks: Array<BlockDocument>;
  operations: Array<OperationOfProgram>;
}

/** A program to plan, and options, without those that only graphs have. */
export interface ProgramRequest {
  program: ProgramDocument;
  options?: PlanRequestOptions | null;
  like?: PlanDocument | null;
}

/** How far a job is. */
export interface Progress {
  stage: string;
  done?: number | null;
  peak_bytes?: number | null;
  bound_bytes?: number | null;
  extra_nanoseconds?: number | null;
  bound_nanoseconds?: number | null;
  step_nanoseconds?: number | null;
  moved_bytes?: number | null;
  seconds: number;
}

/** Bytes from `low` to before `high` of a memory: of the first one, unless `space` names another. */
export interface RangeFields {
  low: number | string;
  high: number | string;
  space?: string;
}

export type RangeOfPlan = [string, number, number];

export type RecordOfPlan = [string, Record<string, unknown>];

export type RefusedOfPlan = [Array<number>, string];

/** A combination of measures that fits the capacity: planned, and its plan proved. */
export interface RemedyOfVerdict {
  measures: Array<string>;
  changes: "nothing" | "rounding" | "training";
  arena_bytes: number;
  extra: number;
  bound?: number | null;
  options: Record<string, boolean | number | string | Array<string> | CostsFields | null>;
  choices?: Record<string, boolean | number | string | Array<string> | CostsFields | null>;
  graph_fields: Record<string, unknown>;
  note?: string;
}

export type ReplacementOfPlan = [string, Array<string>, Array<string>, number, number, number];

/** `identical`: no rule is violated, and all `compared` tensors agreed bit for bit after each step. */
export interface ReportDocument {
  format: "arenaplan.report";
  version: 1;
  identical: boolean;
  compared: number;
  arena_bytes: number;
  paged_in?: number;
  paged_out?: number;
  steps: Array<StepOfReport>;
  violations: Array<ViolationOfReport>;
}

/** Bytes from `low` to before `high` of the arena. */
export interface ReservedDocument {
  low: number;
  high: number;
}

/** The kinds of rows; see the module. */
export type RowKind = "reader" | "repetition" | "held" | "budget";

/** Rules of the exact search, each of which only saves work; see `solver.layout.Rules`. */
export interface RulesOfLayout {
  plateaus?: boolean;
  gaps?: boolean;
  symmetry?: boolean;
  transposition?: boolean;
  decomposition?: boolean;
  weights?: boolean;
  restarts?: boolean;
  peel?: boolean;
  fill?: boolean;
  span?: boolean;
  walls?: boolean;
  jumps?: boolean;
  promotion?: boolean;
  structure?: boolean;
}

/** The verdict of bounds alone on a capacity; `/v1/explain` says more. */
export interface ShortVerdict {
  floor: number;
  floor_step: string;
  smallest: number;
  recompute: "impossible" | "open";
}

/** A range of sizes, both ends included. */
export interface SizesFields {
  from: number;
  to: number;
}

export type SlotOfPlan = [string, Access];

export type SpaceOfPlan = [string, number, boolean, number, CertificateOfPlan];

/** ``queued`` ──► ``running`` ──► one of the others, for good; ``queued`` again if its worker dies. */
export type State = "queued" | "running" | "succeeded" | "failed" | "cancelled";

export type StepOfPlan = [number, number, number | null, number, number, Array<number>];

/** One training step: both losses, and the tensors whose bits differ after it. */
export interface StepOfReport {
  step: number;
  loss: number | "NaN" | "Infinity" | "-Infinity" | null;
  reference_loss: number | "NaN" | "Infinity" | "-Infinity" | null;
  identical: boolean;
  differing: Array<string>;
  entry?: string;
  size?: string;
}

/** How a weight that is not trained is kept: as floats of 16 bits, or as integers with scales. */
export interface StorageDocument {
  kind: "float16" | "bfloat16" | "int8" | "int4" | "q4_k";
  group?: number | null;
  zero_points?: boolean;
  scales?: "float16" | "bfloat16" | "float32";
  axis?: number;
}

export type StorageOfPlan = [number, "float16" | "bfloat16" | "int8" | "int4" | "q4_k", number, boolean, "float16" | "bfloat16" | "float32", number];

/** One memory. Bandwidths are bytes a second, 0 where that of another memory decides; latency is ns. */
export interface TierFields {
  name: string;
  bytes: number;
  read?: number;
  write?: number;
  latency?: number;
}

/** Points with falling peaks and rising costs; the first is the program in which nothing runs again. */
export interface TradeOffDocument {
  format: "arenaplan.tradeoff";
  version: 1;
  graph: string;
  floor: number;
  floor_step: string;
  impossible: number;
  step_nanoseconds: number;
  step_flops: number;
  complete: boolean;
  points: Array<PointOfTradeOff>;
}

/** The graph or program of a curve, and options. */
export interface TradeOffRequest {
  graph: GraphDocument | ProgramDocument;
  options?: PlanRequestOptions | null;
  points?: number;
}

/** Rules for gradients between the backward pass and the optimizer. */
export interface TrainingDocument {
  clip_global_norm?: number | null;
  loss_scale?: number;
  accumulate?: number;
  skip_non_finite?: boolean;
  loss_scale_growth?: number | null;
}

export type TypeOfPlan = [Array<number>, "float32" | "float64" | "int32" | "int64" | "int8" | "uint8" | "bool" | "float16" | "bfloat16"];

/** A graph to train, or several models by name, and the plan to train them in. */
export interface ValidateRequest {
  graph?: GraphDocument;
  models?: Record<string, GraphDocument>;
  plan: PlanDocument | DeploymentDocument;
  steps?: number;
  seed?: number;
}

export type ValueOfPlan = [string, number, number, number, number, number];

/** Facts about a capacity. Sizes are bytes; costs are nanoseconds of modelled time for one update. */
export interface VerdictDocument {
  format: "arenaplan.verdict";
  version: 1;
  graph: string;
  capacity: number;
  status: "impossible" | "open" | "plan";
  peak: number;
  floor: number;
  floor_step: string;
  fixed: number;
  scratch: number;
  touched: Array<LiveValue>;
  waiting: Array<LiveValue>;
  smallest: number;
  smallest_extra: number;
  impossible: number;
  update_nanoseconds: number;
  extra?: number | null;
  bound?: number | null;
  remedies: Array<RemedyOfVerdict>;
  complete: boolean;
  arena_bytes?: number | null;
  repeated_steps?: number;
  attempts?: Array<AttemptOfVerdict>;
}

/** A block in the bytes of another one, which is not a view itself. */
export interface ViewDocument {
  of: string;
  offset?: number;
  strides?: Array<number> | null;
}

/** One broken promise of the plan. */
export interface ViolationOfReport {
  rule: string;
  buffers: Array<string>;
  detail: string;
}

/** An address that gets the document of a finished job by POST, signed as Standard Webhooks says. */
export interface Webhook {
  url: string;
}
