// How the page talks to the service: requests, problems, server-sent events.

/** A problem document (RFC 9457) as an error. */
export class ProblemError extends Error {
  constructor(document, status) {
    super([document.detail ?? document.title ?? `The service answered ${status}.`, document.remedy].filter(Boolean).join(" "));
    this.name = "ProblemError";
    this.document = document;
    this.status = status;
  }

  /** The last part of the type, as "capacity-exceeded". */
  get code() {
    return String(this.document.type ?? "").split("/").pop();
  }
}

/** The service at `server`, by default the one that this page came from; `key` says who asks. */
export class Service {
  constructor({ server = ".", key = "" } = {}) {
    this.server = server.replace(/\/$/, "");
    this.key = key;
  }

  /** The answer to a request: a document, or the response itself where that is something else. */
  async ask(method, path, body, options) {
    const response = await this.fetch(method, path, body, options);
    const media = response.headers.get("Content-Type") ?? "";
    return media.includes("json") ? response.json() : response;
  }

  /** Server-sent events, one by one. The stream may end before what it tells of does. */
  async *stream(method, path, body, options) {
    const response = await this.fetch(method, path, body, options);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let event = { kind: "message", data: [], id: "" };
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          const [, name, text] = /^([^:]*):? ?(.*?)\r?$/.exec(line) ?? [];
          if (name === "event") event.kind = text;
          else if (name === "data") event.data.push(text);
          else if (name === "id") event.id = text;
          else if (line.trim() === "") {
            if (event.data.length) yield { ...event, data: JSON.parse(event.data.join("\n")) };
            event = { kind: "message", data: [], id: event.id };
          }
        }
      }
    } finally {
      await reader.cancel();
    }
  }

  /** A successful response. Throws ProblemError for all others. */
  async fetch(method, path, body, { query = {}, headers = {}, signal } = {}) {
    const sent = new Headers(headers);
    if (this.key) sent.set("Authorization", `Bearer ${this.key}`);
    const binary = body instanceof Blob || body instanceof ArrayBuffer;
    if (body !== undefined && !sent.has("Content-Type"))
      sent.set("Content-Type", binary ? "application/octet-stream" : "application/json");
    const pairs = Object.entries(query).flatMap(([name, value]) =>
      [value].flat().filter((one) => one != null).map((one) => [name, String(one)]),
    );
    const asked = pairs.length ? `?${new URLSearchParams(pairs)}` : "";
    const text = body === undefined || binary || typeof body === "string" ? body : JSON.stringify(body);
    const response = await fetch(`${this.server}${path}${asked}`, { method, headers: sent, body: text, signal });
    if (response.ok) return response;
    const document = await response.json().catch(() => ({}));
    throw new ProblemError(document, response.status);
  }
}
