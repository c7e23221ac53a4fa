# The server on Debian 12, without a model: mount one and name it.
#   docker build -t headwater .
#   docker run --read-only -p 127.0.0.1:8000:8000 -v "$PWD/models:/models:ro" headwater -m /models/SmolLM2-135M-Instruct.Q4_1.gguf
FROM debian:12-slim AS build
# The packages are those of one Debian release; their versions move with its security updates.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends \
      g++ cmake ninja-build pkg-config libboost1.81-dev libcli11-dev libfmt-dev libgmock-dev libgtest-dev \
      libpcre2-dev libspdlog-dev libssl-dev libutf8proc-dev libyaml-cpp-dev prometheus-cpp-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN cmake --preset release && cmake --build build/release --target headwater && strip build/release/headwater

FROM debian:12-slim
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends \
      libfmt9 libpcre2-8-0 libprometheus-cpp-core1.0 libspdlog1.10 libssl3 libstdc++6 libutf8proc2 libyaml-cpp0.7 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /source/build/release/headwater /usr/local/bin/headwater
USER 10001:10001
# Inside a container every client is another machine; what may reach it is decided outside.
ENV HEADWATER_HOST=0.0.0.0 HEADWATER_ALLOW_REMOTE=true
EXPOSE 8000
ENTRYPOINT ["headwater", "serve"]
