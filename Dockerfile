# syntax=docker/dockerfile:1
# The image of the manager (webhook and controller), or of the commands: one program, its libraries, the CAs of the system,
# SBOM and notices.
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) \
#     --build-arg REVISION=$(git rev-parse HEAD) .
# For the commands, which `helm test` runs: --build-arg PROGRAM=wva --target wva
# Each platform builds natively. Releases use one machine for each, and join the two images.
# Every step except the base images is a script of deploy/image, which tests/image.sh runs without a container runtime.
ARG RUST=1.95
ARG DEBIAN=bookworm
ARG PROGRAM=manager

# Cargo.toml, Cargo.lock and empty sources: they, and the next stage, change only with dependencies.
FROM rust:${RUST}-slim-${DEBIAN} AS manifests
WORKDIR /manifests
COPY . .
RUN deploy/image/stubs.sh /manifests

FROM rust:${RUST}-slim-${DEBIAN} AS build
ARG PROGRAM
# The base image has a C compiler, for aws-lc, and the CAs.
WORKDIR /src
COPY --from=manifests /manifests .
RUN deploy/image/build.sh "${PROGRAM}"
COPY . .
ARG SOURCE_DATE_EPOCH=0
# The context has no git history. Without a revision wva reports `unknown`.
ARG REVISION=
# The compiled stubs are newer than the sources.
RUN find . -path ./target -prune -o -name '*.rs' -exec touch {} + \
 && WVA_REVISION="${REVISION}" deploy/image/build.sh "${PROGRAM}" \
 && deploy/image/rootfs.sh "target/release/${PROGRAM}" /image \
 && deploy/image/notices.sh "${PROGRAM}" /image/usr/share/doc/wva

FROM scratch AS image
ARG VERSION=0.1.0
ARG REVISION=
ARG SOURCE=
LABEL org.opencontainers.image.title="workload-variant-autoscaler" \
      org.opencontainers.image.description="Decides how many replicas each variant of a vLLM model server should run" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image /
# By number: a kubelet cannot verify from a name that the user is not root.
USER 65532:65532

FROM image AS wva
LABEL org.opencontainers.image.title="wva" \
      org.opencontainers.image.description="Commands of the Workload-Variant-Autoscaler"
ENTRYPOINT ["/wva"]

FROM image AS manager
# The manifests of llm-d WVA expect this name.
ENTRYPOINT ["/manager"]
