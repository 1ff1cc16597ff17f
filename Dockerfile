# For people with Docker: docker build -t outlane --build-arg VERSION=$(git describe --tags --always) .
# `make image` makes a like image, for two architectures and byte for byte reproducible, without it.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETARCH VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /out/usr/bin/outlane ./cmd/outlane
RUN mkdir -p /out/tmp && chmod 1777 /out/tmp && mkdir -p /out/etc/ssl/certs /out/usr/share \
 && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ \
 && cp "$(go env GOROOT)/lib/time/zoneinfo.zip" /out/usr/share/zoneinfo.zip \
 && printf 'root:x:0:0:root:/:/sbin/nologin\noutlane:x:65532:65532:outlane:/:/sbin/nologin\n' >/out/etc/passwd \
 && printf 'root:x:0:\noutlane:x:65532:\n' >/out/etc/group

FROM scratch
ARG VERSION=dev
LABEL org.opencontainers.image.title=outlane \
      org.opencontainers.image.description="Ordered outbox from Postgres to NATS JetStream" \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.source=https://github.com/outlane/outlane \
      org.opencontainers.image.version=$VERSION
COPY --from=build /out/ /
ENV PATH=/usr/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt ZONEINFO=/usr/share/zoneinfo.zip
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/usr/bin/outlane"]
CMD ["worker"]
