# An environment server as a container, from the wheel:
#
#     pip wheel --no-deps --wheel-dir dist . && docker build -f examples/cluster/env-server.Dockerfile -t agentgym-env .
#     docker run -p 8001:8001 --stop-timeout 30 -v $PWD/token:/run/secrets/token:ro agentgym-env textcraft
#
# SIGTERM drains: new episodes are refused, open ones may continue for 20 seconds.
FROM python:3.11-slim

ARG EXTRAS=textcraft,babyai
COPY dist/agentgym_rl-*.whl /tmp/
RUN wheel=$(echo /tmp/agentgym_rl-*.whl) \
    && pip install --no-cache-dir "$wheel[$EXTRAS]" \
    && rm /tmp/agentgym_rl-*.whl \
    && useradd --create-home server
USER server
WORKDIR /home/server

ENV WORKERS=2 CAPACITY=1024
EXPOSE 8001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8001/health', timeout=4)"]
# `exec`: the server itself gets the signals.
ENTRYPOINT ["sh", "-c", "exec agentgym serve \"$0\" --host 0.0.0.0 --port 8001 --workers $WORKERS --capacity $CAPACITY --token \"$(cat /run/secrets/token)\""]
CMD ["textcraft"]
