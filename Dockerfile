# The service as an image:
#
#   docker build -t arenaplan:0.1.0 .
#   docker run --rm --read-only --tmpfs /tmp --cap-drop ALL -p 127.0.0.1:8080:8080 \
#     -e ARENAPLAN_ALLOW_ANONYMOUS=true arenaplan:0.1.0
#
# It listens on all addresses of the container, so it does not start before it is told who may use it: by
# ARENAPLAN_AUTH, or, as above where the port is published on loopback, that everybody may.
#
# The base is pinned to a patch release. Where the build must be repeatable to the byte, pin its digest too:
#
#   --build-arg PYTHON_DIGEST=@sha256:<digest of the tag, as `docker buildx imagetools inspect` prints it>
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm
ARG PYTHON_DIGEST=

# --- builder: the locked packages and the project's wheel in /opt/venv -----------------------------
FROM ${PYTHON_IMAGE}${PYTHON_DIGEST} AS builder

# Compiled code must run on any processor of this kind, not only on the builder's.
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES=""

WORKDIR /src
COPY requirements-runtime.lock requirements-build.lock ./
# Packages first: this layer stays cached until a lock changes.
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-deps --require-hashes -r requirements-build.lock \
    && python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-compile --no-deps --require-hashes -r requirements-runtime.lock

COPY pyproject.toml README.md LICENSE ./
COPY solver solver
COPY service service
COPY clients clients
COPY arenaplan arenaplan
# The final stage cannot write bytecode or compiled code, so both are made here; pip is of no use there.
# -P: the packages installed, not the sources in this directory, which stay behind in this stage.
RUN /opt/build/bin/hatchling build -t wheel -d /tmp/wheel \
    && /opt/venv/bin/pip install --no-compile --no-deps --no-index /tmp/wheel/*.whl \
    && /opt/venv/bin/pip uninstall --yes pip \
    && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/venv/lib \
    && /opt/venv/bin/python -P -m solver.compile

# --- final: no compiler, no pip, nothing writable, no other user to become -------------------------------
FROM ${PYTHON_IMAGE}${PYTHON_DIGEST}

LABEL org.opencontainers.image.title="arenaplan" \
      org.opencontainers.image.description="Plans the memory of neural-network training, and proves the plan" \
      org.opencontainers.image.version="0.1.0"

RUN groupadd --system --gid 10001 arenaplan \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent \
       --shell /usr/sbin/nologin arenaplan

COPY --from=builder /opt/venv /opt/venv

ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NUMBA_CPU_NAME=generic \
    NUMBA_CPU_FEATURES="" \
    ARENAPLAN_HOST=0.0.0.0 \
    ARENAPLAN_PORT=8080

# A number, so that an orchestrator can see that it is not root.
USER 10001:10001
WORKDIR /tmp

# Without compiled code the service would plan as well, but slower and less tightly: rather no image than that.
RUN python -P -m solver.compile --check

EXPOSE 8080
STOPSIGNAL SIGTERM

# http.client: no proxy from the environment gets between.
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import http.client as h, os, sys; c = h.HTTPConnection('127.0.0.1', int(os.environ['ARENAPLAN_PORT']), timeout=4); c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)"]

ENTRYPOINT ["arenaplan"]
CMD ["serve"]
