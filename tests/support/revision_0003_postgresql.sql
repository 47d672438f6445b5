-- The same database as revision_0003_sqlite.sql, as pg_dump writes its public schema.
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.api_keys (
    id text NOT NULL,
    tenant text NOT NULL,
    name text NOT NULL,
    scopes text NOT NULL,
    digest bytea NOT NULL,
    created double precision NOT NULL,
    expires double precision,
    revoked double precision,
    used double precision
);
CREATE TABLE public.audit (
    id text NOT NULL,
    at double precision NOT NULL,
    tenant text NOT NULL,
    subject text NOT NULL,
    key text,
    client text,
    action text NOT NULL,
    target text NOT NULL,
    result text NOT NULL,
    request_id text,
    times integer NOT NULL
);
CREATE TABLE public.blobs (
    tenant text NOT NULL,
    digest text NOT NULL,
    size bigint NOT NULL,
    touched double precision NOT NULL,
    body bytea NOT NULL,
    object text
);
CREATE TABLE public.deliveries (
    id text NOT NULL,
    job text NOT NULL,
    tenant text NOT NULL,
    url text NOT NULL,
    attempts integer NOT NULL,
    due double precision,
    failure text
);
CREATE TABLE public.graphs (
    tenant text NOT NULL,
    digest text NOT NULL,
    media_type text NOT NULL,
    created double precision NOT NULL
);
CREATE TABLE public.jobs (
    id text NOT NULL,
    tenant text NOT NULL,
    subject text NOT NULL,
    task text NOT NULL,
    work text NOT NULL,
    state text NOT NULL,
    revision bigint NOT NULL,
    created double precision NOT NULL,
    started double precision,
    finished double precision,
    expires double precision,
    attempts integer NOT NULL,
    request text,
    graph text,
    size bigint NOT NULL,
    progress json,
    error json,
    result text,
    facts json,
    webhook text,
    idempotency_key text,
    fingerprint text,
    cancel boolean NOT NULL,
    owner text,
    lease double precision,
    trace text,
    CONSTRAINT jobs_state CHECK ((state = ANY (ARRAY['queued'::text, 'running'::text, 'succeeded'::text, 'failed'::text, 'cancelled'::text])))
);
CREATE TABLE public.removals (
    object text NOT NULL,
    due double precision NOT NULL
);
CREATE TABLE public.results (
    tenant text NOT NULL,
    key text NOT NULL,
    name text NOT NULL,
    blob text NOT NULL,
    touched double precision NOT NULL
);
CREATE TABLE public.tenants (
    name text NOT NULL,
    created double precision NOT NULL,
    disabled boolean NOT NULL,
    quotas json NOT NULL
);
CREATE TABLE public.usage (
    tenant text NOT NULL,
    hour integer NOT NULL,
    requests bigint NOT NULL,
    cpu_seconds double precision NOT NULL
);
INSERT INTO public.alembic_version VALUES ('0003');
INSERT INTO public.api_keys VALUES ('0123456789abcdef', 'acme', 'farm', 'jobs plan', '\x0101010101010101010101010101010101010101010101010101010101010101', 1764000000, NULL, NULL, NULL);
INSERT INTO public.audit VALUES ('019ab5a0c000000000000001', 1764000000, 'acme', 'farm', NULL, NULL, 'POST', '/v1/jobs', '202', NULL, 1);
INSERT INTO public.blobs VALUES ('acme', 'ca8ef7f3dbe2724d6da0303dd8904aa1a3f5bc145ec37a19e913b9f9a5c35e34', 10, 1764000000, '\x6563686f0a7761697473', NULL);
INSERT INTO public.blobs VALUES ('acme', 'e87ba7a0b779d8b797f86d19604504496f23b4d1e31ed4721d9dc8634172b723', 5, 1764000000, '\x656e646564', NULL);
INSERT INTO public.blobs VALUES ('acme', '0a08c630fab02682c8b4dacf728ae84dd8f8ca528f7af3d3832062c124d1676b', 8, 1764000000, '\x', 'tenant=acme/far-1');
INSERT INTO public.blobs VALUES ('acme', '86b0c5a1e2b73b08fd54c727f4458649ed9fe3ad1b6e8ac9460c070113509a1e', 5, 1764000000, '\x6563686f0a', NULL);
INSERT INTO public.deliveries VALUES ('msg_019ab5a0c00000000000000000000002', '019ab5a0c00000000000000000000002', 'acme', 'https://example.com/hook', 1, 1764000000, 'status 503');
INSERT INTO public.graphs VALUES ('acme', '86b0c5a1e2b73b08fd54c727f4458649ed9fe3ad1b6e8ac9460c070113509a1e', 'application/json', 1764000000);
INSERT INTO public.jobs VALUES ('019ab5a0c00000000000000000000001', 'acme', 'farm', 'plan', 'plan', 'queued', 1, 1764000000, NULL, NULL, NULL, 0, 'ca8ef7f3dbe2724d6da0303dd8904aa1a3f5bc145ec37a19e913b9f9a5c35e34', NULL, 10, NULL, NULL, NULL, NULL, 'https://example.com/hook', 'mine', 'f', false, NULL, NULL, NULL);
INSERT INTO public.jobs VALUES ('019ab5a0c00000000000000000000002', 'acme', 'farm', 'plan', 'plan', 'succeeded', 1, 1764000000, 1764000000, 1764000000, 100000000000, 1, NULL, NULL, 10, NULL, NULL, 'e87ba7a0b779d8b797f86d19604504496f23b4d1e31ed4721d9dc8634172b723', '{"name": "plans/near", "kept": true}', 'https://example.com/hook', NULL, NULL, false, NULL, NULL, NULL);
INSERT INTO public.jobs VALUES ('019ab5a0c00000000000000000000003', 'acme', 'farm', 'plan', 'plan', 'succeeded', 1, 1764000000, 1764000000, 1764000000, 100000000000, 1, NULL, NULL, 10, NULL, NULL, '0a08c630fab02682c8b4dacf728ae84dd8f8ca528f7af3d3832062c124d1676b', '{"name": "plans/near", "kept": true}', NULL, NULL, NULL, false, NULL, NULL, NULL);
INSERT INTO public.removals VALUES ('tenant=acme/old-2', 1764000000);
INSERT INTO public.results VALUES ('acme', 'near', 'plans/near', 'e87ba7a0b779d8b797f86d19604504496f23b4d1e31ed4721d9dc8634172b723', 1764000000);
INSERT INTO public.results VALUES ('acme', 'far', 'plans/far', '0a08c630fab02682c8b4dacf728ae84dd8f8ca528f7af3d3832062c124d1676b', 1764000000);
INSERT INTO public.tenants VALUES ('acme', 1764000000, false, '{"stored_bytes": 1000}');
INSERT INTO public.usage VALUES ('acme', 490000, 2, 1.5);
ALTER TABLE ONLY public.alembic_version ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.api_keys ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.audit ADD CONSTRAINT audit_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.blobs ADD CONSTRAINT blobs_pkey PRIMARY KEY (tenant, digest);
ALTER TABLE ONLY public.deliveries ADD CONSTRAINT deliveries_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.graphs ADD CONSTRAINT graphs_pkey PRIMARY KEY (tenant, digest);
ALTER TABLE ONLY public.jobs ADD CONSTRAINT jobs_idempotency UNIQUE (tenant, idempotency_key);
ALTER TABLE ONLY public.jobs ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.removals ADD CONSTRAINT removals_pkey PRIMARY KEY (object);
ALTER TABLE ONLY public.results ADD CONSTRAINT results_pkey PRIMARY KEY (tenant, key);
ALTER TABLE ONLY public.tenants ADD CONSTRAINT tenants_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.usage ADD CONSTRAINT usage_pkey PRIMARY KEY (tenant, hour);
CREATE INDEX api_keys_of_tenant ON public.api_keys USING btree (tenant);
CREATE INDEX audit_of_tenant ON public.audit USING btree (tenant, id);
CREATE INDEX deliveries_due ON public.deliveries USING btree (due);
CREATE INDEX jobs_by_state ON public.jobs USING btree (state, tenant, id);
CREATE INDEX jobs_of_tenant ON public.jobs USING btree (tenant, id);
CREATE INDEX removals_due ON public.removals USING btree (due);
CREATE INDEX results_by_blob ON public.results USING btree (tenant, blob);
CREATE INDEX results_by_name ON public.results USING btree (tenant, name);
CREATE INDEX usage_by_hour ON public.usage USING btree (hour);
