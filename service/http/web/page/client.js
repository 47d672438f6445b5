// Written by `./run schema` from the OpenAPI document of the service; changes belong there.
import { Service } from "./service.js";

/** Every route as a method; types stand in client.d.ts. */
export class Client extends Service {
  /** Plan a training graph: the same as POST /plan: POST /v1/plan */
  plan(body, options = {}) {
    return this.ask("POST", `/v1/plan`, body, options);
  }

  /** Plan explicit operations: POST /v1/program */
  planProgram(body, options = {}) {
    return this.ask("POST", `/v1/program`, body, options);
  }

  /** A plan by its digest: GET /v1/plans/{digest} */
  getPlan(digest, options = {}) {
    return this.ask("GET", `/v1/plans/${encodeURIComponent(digest)}`, undefined, options);
  }

  /** A plan as another file: GET /v1/plans/{digest}/{format} */
  exportPlan(digest, format, options = {}) {
    return this.ask("GET", `/v1/plans/${encodeURIComponent(digest)}/${encodeURIComponent(format)}`, undefined, options);
  }

  /** Costs of smaller peaks: POST /v1/tradeoff */
  tradeoff(body, options = {}) {
    return this.ask("POST", `/v1/tradeoff`, body, options);
  }

  /** Whether a capacity is enough, and what makes it so: POST /v1/explain */
  explain(body, options = {}) {
    return this.ask("POST", `/v1/explain`, body, options);
  }

  /** Train in a plan and compare: POST /v1/validate */
  validate(body, options = {}) {
    return this.ask("POST", `/v1/validate`, body, options);
  }

  /** Place buffers with known lifespans: POST /v1/layout */
  placeBuffers(body, options = {}) {
    return this.ask("POST", `/v1/layout`, body, options);
  }

  /** A layout by its digest: GET /v1/layouts/{digest} */
  getLayout(digest, options = {}) {
    return this.ask("GET", `/v1/layouts/${encodeURIComponent(digest)}`, undefined, options);
  }

  /** Accept a job: POST /v1/jobs */
  submitJob(body, options = {}) {
    return this.ask("POST", `/v1/jobs`, body, options);
  }

  /** Jobs, the newest first: GET /v1/jobs */
  listJobs(options = {}) {
    return this.ask("GET", `/v1/jobs`, undefined, options);
  }

  /** A job: GET /v1/jobs/{id} */
  getJob(id, options = {}) {
    return this.ask("GET", `/v1/jobs/${encodeURIComponent(id)}`, undefined, options);
  }

  /** Cancel a job: DELETE /v1/jobs/{id} */
  cancelJob(id, options = {}) {
    return this.ask("DELETE", `/v1/jobs/${encodeURIComponent(id)}`, undefined, options);
  }

  /** The result of a job: GET /v1/jobs/{id}/result */
  getJobResult(id, options = {}) {
    return this.ask("GET", `/v1/jobs/${encodeURIComponent(id)}/result`, undefined, options);
  }

  /** News of a job: GET /v1/jobs/{id}/events */
  streamJobEvents(id, options = {}) {
    return this.stream("GET", `/v1/jobs/${encodeURIComponent(id)}/events`, undefined, options);
  }

  /** Store a graph or a model: PUT /v1/graphs/{digest} */
  storeGraph(digest, body, options = {}) {
    return this.ask("PUT", `/v1/graphs/${encodeURIComponent(digest)}`, body, options);
  }

  /** A stored graph: GET /v1/graphs/{digest} */
  getGraph(digest, options = {}) {
    return this.ask("GET", `/v1/graphs/${encodeURIComponent(digest)}`, undefined, options);
  }

  /** Forget a graph: DELETE /v1/graphs/{digest} */
  deleteGraph(digest, options = {}) {
    return this.ask("DELETE", `/v1/graphs/${encodeURIComponent(digest)}`, undefined, options);
  }

  /** Names of the JSON Schemas: GET /v1/schemas */
  listSchemas(options = {}) {
    return this.ask("GET", `/v1/schemas`, undefined, options);
  }

  /** A JSON Schema: GET /v1/schemas/{name} */
  getSchema(name, options = {}) {
    return this.ask("GET", `/v1/schemas/${encodeURIComponent(name)}`, undefined, options);
  }
}
