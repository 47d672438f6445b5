// Written by `./run schema` from the OpenAPI document of the service; changes belong there.
import { Service } from "./service.js";

/** Every route as a method; types stand in client.d.ts. */
export class Client extends Service {
  /** Plan a training graph: POST /v1/plan */
  plan(body, options = {}) {
    return this.ask("POST", `/v1/plan`, body, options);
  }

  /** Plan explicit operations: POST /v1/program */
  program(body, options = {}) {
    return this.ask("POST", `/v1/program`, body, options);
  }

  /** A plan by its digest: GET /v1/plans/{digest} */
  storedPlan(digest, options = {}) {
    return this.ask("GET", `/v1/plans/${encodeURIComponent(digest)}`, undefined, options);
  }

  /** A plan as another file: GET /v1/plans/{digest}/{format} */
  exportedPlan(digest, format, options = {}) {
    return this.ask("GET", `/v1/plans/${encodeURIComponent(digest)}/${encodeURIComponent(format)}`, undefined, options);
  }

  /** What less memory costs: POST /v1/tradeoff */
  tradeoff(body, options = {}) {
    return this.ask("POST", `/v1/tradeoff`, body, options);
  }

  /** Whether a capacity is enough, and what makes it so: POST /v1/explain */
  explain(body, options = {}) {
    return this.ask("POST", `/v1/explain`, body, options);
  }

  /** Place buffers with known lifespans: POST /v1/layout */
  layout(body, options = {}) {
    return this.ask("POST", `/v1/layout`, body, options);
  }

  /** A layout by its digest: GET /v1/layouts/{digest} */
  storedLayout(digest, options = {}) {
    return this.ask("GET", `/v1/layouts/${encodeURIComponent(digest)}`, undefined, options);
  }

  /** Train in a plan and compare: POST /v1/validate */
  validate(body, options = {}) {
    return this.ask("POST", `/v1/validate`, body, options);
  }

  /** Names of the JSON Schemas: GET /v1/schemas */
  schemas(options = {}) {
    return this.ask("GET", `/v1/schemas`, undefined, options);
  }

  /** A JSON Schema: GET /v1/schemas/{name} */
  schema(name, options = {}) {
    return this.ask("GET", `/v1/schemas/${encodeURIComponent(name)}`, undefined, options);
  }
}
