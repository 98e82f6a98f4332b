# A broker for tests and development, with a listener for containers of its network and one for the host:
#
#   docker build -t kohort .
#   docker run --rm --name kohort --hostname kohort -p 127.0.0.1:9092:9092 kohort
#
# Containers of the same network use kohort:29092, the host uses localhost:9092. Neither asks for a login: publish the
# port on 127.0.0.1 only, or give arguments of your own (docs/how-to/log-in-by-scram.md). Data is kept with
# `-v kohort-data:/var/lib/kohort`.
FROM python:3.13-bookworm AS build
COPY . /source
RUN pip wheel --no-cache-dir --wheel-dir /wheels /source

FROM python:3.13-slim-bookworm
RUN --mount=from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels kohort \
    && useradd --system --uid 10001 --home-dir /var/lib/kohort --create-home --shell /usr/sbin/nologin kohort
USER kohort
WORKDIR /var/lib/kohort
VOLUME /var/lib/kohort
EXPOSE 9092 29092
STOPSIGNAL SIGINT
HEALTHCHECK --interval=5s --timeout=5s --start-period=5s CMD ["kohort", "broker", "status", "-b", "localhost:9092"]
ENTRYPOINT ["kohort"]
CMD ["up", "--data-dir", "/var/lib/kohort/data", \
    "--listen", "INSIDE=0.0.0.0:29092", "--listen", "OUTSIDE=0.0.0.0:9092", "--allow-anonymous", \
    "--config", "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT", \
    "--config", "advertised.listeners=INSIDE://kohort:29092,OUTSIDE://localhost:9092"]
