// Types of service.js.

export interface Options<Query = Record<string, unknown>> {
  query?: Query;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export interface ServerEvent {
  kind: string;
  data: any;
  id: string;
}

export class ProblemError extends Error {
  constructor(document: Record<string, unknown>, status: number);
  document: Record<string, any>;
  status: number;
  readonly code: string;
}

export class Service {
  constructor(options?: { server?: string; key?: string });
  server: string;
  key: string;
  ask(method: string, path: string, body?: unknown, options?: Options): Promise<any>;
  stream(method: string, path: string, body?: unknown, options?: Options): AsyncGenerator<ServerEvent>;
  fetch(method: string, path: string, body?: unknown, options?: Options): Promise<Response>;
}
