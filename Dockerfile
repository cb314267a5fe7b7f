# Dockerfile - builds Toeplab from the packages of Debian alone (docs/packages.md).
#
#   docker build -t toeplab .
#   docker run --rm toeplab
#   docker build -t toeplab-checkout --target checkout . && docker run --rm toeplab-checkout

# The checkout, with what builds and tests it.
FROM debian:bookworm-slim AS checkout
RUN useradd --create-home toeplab
WORKDIR /toeplab
COPY . .
# The image may run on another processor than that which builds it.
ENV TOEPLAB_CMAKE=-DTL_NATIVE=OFF
RUN ./lab --version && DESTDIR=/installed cmake --install build --prefix /usr/local
RUN packaging/runtime_packages /installed >/installed/packages && chown -R toeplab: .
USER toeplab
CMD ["./lab", "test"]

# The installed program alone.
FROM debian:bookworm-slim
COPY --from=checkout /installed/packages /tmp/packages
RUN apt-get update && xargs apt-get install -y --no-install-recommends </tmp/packages && \
    rm -rf /var/lib/apt/lists/*
COPY --from=checkout /installed/usr/local /usr/local
RUN ldconfig && useradd --create-home toeplab && \
    ln -s /usr/local/share/toeplab/experiments ~toeplab/experiments
USER toeplab
WORKDIR /home/toeplab
ENTRYPOINT ["toeplab"]
CMD ["run", "experiments/quickstart.lua"]
