# One image for every process of a fleet; docker-compose.yml says which is which.
# An agent that needs more than this (Python, Node.js) gets an image of its own
# that begins FROM this one, for the cpu worker alone.
FROM golang:1.27 AS build
ENV GOTOOLCHAIN=auto CGO_ENABLED=0 GOCACHE=/cache/go-build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/cache/go-build \
    go build -trimpath -buildvcs=false -ldflags='-s -w' -o /out/ ./cmd/fulgurite-worker

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates tzdata \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --create-home fulgurite \
 && install -d -o fulgurite -g fulgurite /var/lib/fulgurite
COPY --from=build /out/fulgurite-worker /usr/local/bin/
USER fulgurite
WORKDIR /home/fulgurite
# Processes that answer over HTTP have their own check in docker-compose.yml; this
# one serves whoever runs the image with another address.
HEALTHCHECK --interval=5s --timeout=5s --start-period=10s \
    CMD ["sh", "-c", "exec fulgurite-worker health --url \"http${FULGURITE_TLS_CERT:+s}://${FULGURITE_HEALTH_LISTEN:-$FULGURITE_LISTEN}/healthz\""]
ENTRYPOINT ["fulgurite-worker"]
