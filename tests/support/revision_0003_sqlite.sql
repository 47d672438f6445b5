-- A database at revision 0003, as SQLite dumps it: users, and jobs with webhooks and results in a bucket.
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
CREATE TABLE api_keys (
    id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    digest BLOB NOT NULL,
    created DOUBLE NOT NULL,
    expires DOUBLE,
    revoked DOUBLE,
    used DOUBLE,
    PRIMARY KEY (id)
);
INSERT INTO "api_keys" VALUES('0123456789abcdef','acme','farm','jobs plan',X'0101010101010101010101010101010101010101010101010101010101010101',1764000000.0,NULL,NULL,NULL);
CREATE TABLE audit (
    id TEXT NOT NULL,
    at DOUBLE NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    "key" TEXT,
    client TEXT,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    result TEXT NOT NULL,
    request_id TEXT,
    times INTEGER NOT NULL,
    PRIMARY KEY (id)
);
INSERT INTO "audit" VALUES('019ab5a0c000000000000001',1764000000.0,'acme','farm',NULL,NULL,'POST','/v1/jobs','202',NULL,1);
CREATE TABLE blobs (
    tenant TEXT NOT NULL,
    digest TEXT NOT NULL,
    size BIGINT NOT NULL,
    touched DOUBLE NOT NULL,
    body BLOB NOT NULL, object TEXT,
    PRIMARY KEY (tenant, digest)
);
INSERT INTO "blobs" VALUES('acme','ca8ef7f3dbe2724d6da0303dd8904aa1a3f5bc145ec37a19e913b9f9a5c35e34',10,1764000000.0,X'6563686F0A7761697473',NULL);
INSERT INTO "blobs" VALUES('acme','e87ba7a0b779d8b797f86d19604504496f23b4d1e31ed4721d9dc8634172b723',5,1764000000.0,X'656E646564',NULL);
INSERT INTO "blobs" VALUES('acme','0a08c630fab02682c8b4dacf728ae84dd8f8ca528f7af3d3832062c124d1676b',8,1764000000.0,X'','tenant=acme/far-1');
INSERT INTO "blobs" VALUES('acme','86b0c5a1e2b73b08fd54c727f4458649ed9fe3ad1b6e8ac9460c070113509a1e',5,1764000000.0,X'6563686F0A',NULL);
CREATE TABLE deliveries (
    id TEXT NOT NULL,
    job TEXT NOT NULL,
    tenant TEXT NOT NULL,
    url TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    due DOUBLE,
    failure TEXT,
    PRIMARY KEY (id)
);
INSERT INTO "deliveries" VALUES('msg_019ab5a0c00000000000000000000002','019ab5a0c00000000000000000000002','acme','https://example.com/hook',1,1764000000.0,'status 503');
CREATE TABLE graphs (
    tenant TEXT NOT NULL,
    digest TEXT NOT NULL,
    media_type TEXT NOT NULL,
    created DOUBLE NOT NULL,
    PRIMARY KEY (tenant, digest)
);
INSERT INTO "graphs" VALUES('acme','86b0c5a1e2b73b08fd54c727f4458649ed9fe3ad1b6e8ac9460c070113509a1e','application/json',1764000000.0);
CREATE TABLE jobs (
    id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    task TEXT NOT NULL,
    work TEXT NOT NULL,
    state TEXT NOT NULL,
    revision BIGINT NOT NULL,
    created DOUBLE NOT NULL,
    started DOUBLE,
    finished DOUBLE,
    expires DOUBLE,
    attempts INTEGER NOT NULL,
    request TEXT,
    graph TEXT,
    size BIGINT NOT NULL,
    progress JSON,
    error JSON,
    result TEXT,
    facts JSON,
    webhook TEXT,
    idempotency_key TEXT,
    fingerprint TEXT,
    cancel BOOLEAN NOT NULL,
    owner TEXT,
    lease DOUBLE,
    trace TEXT,
    PRIMARY KEY (id),
    CONSTRAINT jobs_idempotency UNIQUE (tenant, idempotency_key),
    CONSTRAINT jobs_state CHECK (state in ('queued', 'running', 'succeeded', 'failed', 'cancelled'))
);
INSERT INTO "jobs" VALUES('019ab5a0c00000000000000000000001','acme','farm','plan','plan','queued',1,1764000000.0,NULL,NULL,NULL,0,'ca8ef7f3dbe2724d6da0303dd8904aa1a3f5bc145ec37a19e913b9f9a5c35e34',NULL,10,NULL,NULL,NULL,NULL,'https://example.com/hook','mine','f',0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES('019ab5a0c00000000000000000000002','acme','farm','plan','plan','succeeded',1,1764000000.0,1764000000.0,1764000000.0,100000000000.0,1,NULL,NULL,10,NULL,NULL,'e87ba7a0b779d8b797f86d19604504496f23b4d1e31ed4721d9dc8634172b723','{"name": "plans/near", "kept": true}','https://example.com/hook',NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES('019ab5a0c00000000000000000000003','acme','farm','plan','plan','succeeded',1,1764000000.0,1764000000.0,1764000000.0,100000000000.0,1,NULL,NULL,10,NULL,NULL,'0a08c630fab02682c8b4dacf728ae84dd8f8ca528f7af3d3832062c124d1676b','{"name": "plans/near", "kept": true}',NULL,NULL,NULL,0,NULL,NULL,NULL);
CREATE TABLE removals (
    object TEXT NOT NULL,
    due DOUBLE NOT NULL,
    PRIMARY KEY (object)
);
INSERT INTO "removals" VALUES('tenant=acme/old-2',1764000000.0);
CREATE TABLE results (
    tenant TEXT NOT NULL,
    "key" TEXT NOT NULL,
    name TEXT NOT NULL,
    blob TEXT NOT NULL,
    touched DOUBLE NOT NULL,
    PRIMARY KEY (tenant, "key")
);
INSERT INTO "results" VALUES('acme','near','plans/near','e87ba7a0b779d8b797f86d19604504496f23b4d1e31ed4721d9dc8634172b723',1764000000.0);
INSERT INTO "results" VALUES('acme','far','plans/far','0a08c630fab02682c8b4dacf728ae84dd8f8ca528f7af3d3832062c124d1676b',1764000000.0);
CREATE TABLE tenants (
    name TEXT NOT NULL,
    created DOUBLE NOT NULL,
    disabled BOOLEAN NOT NULL,
    quotas JSON NOT NULL,
    PRIMARY KEY (name)
);
INSERT INTO "tenants" VALUES('acme',1764000000.0,0,'{"stored_bytes": 1000}');
CREATE TABLE usage (
    tenant TEXT NOT NULL,
    hour INTEGER NOT NULL,
    requests BIGINT NOT NULL,
    cpu_seconds DOUBLE NOT NULL,
    PRIMARY KEY (tenant, hour)
);
INSERT INTO "usage" VALUES('acme',490000,2,1.5);
CREATE INDEX results_by_name ON results (tenant, name);
CREATE INDEX results_by_blob ON results (tenant, blob);
CREATE INDEX jobs_by_state ON jobs (state, tenant, id);
CREATE INDEX jobs_of_tenant ON jobs (tenant, id);
CREATE INDEX deliveries_due ON deliveries (due);
CREATE INDEX api_keys_of_tenant ON api_keys (tenant);
CREATE INDEX usage_by_hour ON usage (hour);
CREATE INDEX audit_of_tenant ON audit (tenant, id);
CREATE INDEX removals_due ON removals (due);
COMMIT;
