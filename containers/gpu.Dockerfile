# Training on NVIDIA GPUs: TensorFlow with its own CUDA, Horovod on NCCL, cloudbench. Build it from the repository's root:
#   docker build --file containers/gpu.Dockerfile --tag cloudbench-gpu .
ARG BASE_IMAGE=debian:12-slim
# Lends nvcc and the static NCCL with which Horovod is compiled; its CUDA is of TensorFlow's own minor version.
ARG CUDA_IMAGE=nvidia/cuda:12.5.1-devel-ubuntu22.04

FROM ${CUDA_IMAGE} AS cuda

FROM ${BASE_IMAGE} AS frameworks
# A package index of one's own; a base image may also bring /etc/pip.conf.
ARG PIP_INDEX_URL
ENV DEBIAN_FRONTEND=noninteractive \
    PIP_CONSTRAINT=/build/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN apt-get update \
    && apt-get install --yes --no-install-recommends cmake g++ make python3-venv
COPY containers/constraints.txt /build/
RUN python3 -m venv /opt/cloudbench \
    && /opt/cloudbench/bin/pip install 'tensorflow[and-cuda]==2.18.1' pyzmq==27.3.0
COPY --from=cuda /usr/local/cuda-12.5 /usr/local/cuda
COPY --from=cuda /usr/include/nccl.h /usr/local/cuda/include/
COPY --from=cuda /usr/lib/*-linux-gnu/libnccl_static.a /usr/local/cuda/lib64/
COPY scripts/build-horovod /build/
RUN HOROVOD_CUDA_HOME=/usr/local/cuda HOROVOD_GPU_OPERATIONS=NCCL PATH=/usr/local/cuda/bin:$PATH \
    /build/build-horovod /opt/cloudbench/bin/python

FROM frameworks AS build
COPY LICENSE README.md pyproject.toml /build/cloudbench/
COPY job_templates /build/cloudbench/job_templates
COPY cloudbench /build/cloudbench/cloudbench
# TensorFlow's headers served to compile Horovod and nothing else.
RUN /opt/cloudbench/bin/pip install /build/cloudbench \
    && rm -r /opt/cloudbench/lib/python3*/site-packages/tensorflow/include

FROM ${BASE_IMAGE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 \
    && apt-get clean \
    && rm -r /var/lib/apt/lists/* \
    && useradd --create-home cloudbench \
    && chmod 1777 /home/cloudbench
COPY --from=build /opt/cloudbench /opt/cloudbench
# Any user id works: the home folder is open to all, and the name need not be in /etc/passwd.
ENV HOME=/home/cloudbench USER=cloudbench PATH=/opt/cloudbench/bin:$PATH \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER cloudbench
WORKDIR /home/cloudbench
