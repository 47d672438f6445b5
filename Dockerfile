# The service as an image, and two small ones for build machines:
#
#   docker build -t arenaplan:0.1.0 .
#   docker run --rm --read-only --tmpfs /tmp --cap-drop ALL -p 127.0.0.1:8080:8080 \
#     -e ARENAPLAN_ALLOW_ANONYMOUS=true arenaplan:0.1.0
#
# It listens on all addresses of the container, so it does not start before it is told who may use it: by
# ARENAPLAN_AUTH, or, as above where the port is published on loopback, that everybody may.
#
#   docker build --target plan -t arenaplan-plan:0.1.0 .       plans in the container, no service
#   docker build --target client -t arenaplan-client:0.1.0 .   asks a service: arenaplan plan --server URL
#
# `deploy/test-image` builds them, runs them, and checks what deploy/README.md promises.
#
# The base is pinned to a patch release. Where the build must be repeatable to the byte, pin its digest too:
#
#   --build-arg PYTHON_DIGEST=@sha256:<digest of the tag, as `docker buildx imagetools inspect` prints it>
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm
ARG PYTHON_DIGEST=

# --- builder: the project's wheel and its compiled code, the locked packages of the service in /opt/venv ---
FROM ${PYTHON_IMAGE}${PYTHON_DIGEST} AS builder

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1

WORKDIR /src
# A linker for what is compiled, and strip. Nothing of it reaches the images, so any version does.
# hadolint ignore=DL3008
RUN command -v ld strip >/dev/null \
    || (apt-get update && apt-get install --yes --no-install-recommends binutils && rm -rf /var/lib/apt/lists/*)

COPY requirements/runtime.lock requirements/build.lock requirements/
# Packages first: this layer stays cached until a lock changes. This environment compiles, and no more.
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-deps --require-hashes -r requirements/build.lock \
    && /opt/build/bin/pip install --no-compile --no-deps --require-hashes -r requirements/runtime.lock

COPY pyproject.toml README.md LICENSE ./
COPY solver solver
COPY service service
COPY clients clients
COPY arenaplan arenaplan
# -P: the packages installed, not the sources in this directory, which stay behind in this stage.
# Shared libraries of all that is compiled, inside the package: no compiler is in the images.
RUN /opt/build/bin/hatchling build -t wheel -d /tmp/wheel \
    && /opt/build/bin/pip install --no-compile --no-deps --no-index /tmp/wheel/*.whl \
    && /opt/build/bin/python -P -m solver.compile --in-package
COPY deploy/fill-environment deploy/fill-root deploy/image-lock deploy/
COPY deploy/stand-in deploy/stand-in

FROM builder AS builder-service
COPY requirements/image.lock requirements/
RUN deploy/fill-environment requirements/image.lock

FROM builder AS builder-plan
COPY requirements/image-plan.lock requirements/
RUN deploy/fill-environment requirements/image-plan.lock

FROM builder AS builder-client
COPY requirements/image-client.lock requirements/
RUN deploy/fill-environment requirements/image-client.lock

# --- base: no shell, no compiler, no installer, nothing writable, no other user to become -----------------
FROM scratch AS base

ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="arenaplan" \
      org.opencontainers.image.description="Plans the memory of neural-network training, and proves the plan" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"

ENV PATH=/opt/venv/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

# A number, so that an orchestrator can see that it is not root.
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["arenaplan"]

# --- client: asks a service -----------------------------------------------------------------------------
FROM base AS client
COPY --from=builder-client /opt/root /
COPY --from=builder-client /opt/venv /opt/venv
CMD ["--help"]

# --- plan: the command line, for build machines -----------------------------------------------------------
FROM base AS plan
COPY --from=builder-plan /opt/root /
COPY --from=builder-plan /opt/venv /opt/venv
RUN ["python", "-P", "-m", "solver.compile", "--check"]
CMD ["--help"]

# --- service, the image that is built by default ----------------------------------------------------------
FROM base AS service
COPY --from=builder-service /opt/root /
COPY --from=builder-service /opt/venv /opt/venv

ENV ARENAPLAN_HOST=0.0.0.0 \
    ARENAPLAN_PORT=8080 \
    ARENAPLAN_DATABASE_URL=sqlite:////var/lib/arenaplan/arenaplan.db

# Without compiled code the service would plan as well, but slower and less tightly: rather no image than that.
RUN ["python", "-P", "-m", "solver.compile", "--check"]

EXPOSE 8080
STOPSIGNAL SIGTERM

# http.client: no proxy from the environment gets between.
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import http.client as h, os, sys; c = h.HTTPConnection('127.0.0.1', int(os.environ['ARENAPLAN_PORT']), timeout=4); c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)"]

CMD ["serve"]
