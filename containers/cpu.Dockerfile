# Training on CPUs: TensorFlow, Horovod on gloo, cloudbench. Build it from the repository's root:
#   docker build --file containers/cpu.Dockerfile --tag cloudbench-cpu .
ARG BASE_IMAGE=debian:12-slim

FROM ${BASE_IMAGE} AS frameworks
# A package index of one's own; a base image may also bring /etc/pip.conf.
ARG PIP_INDEX_URL
ENV DEBIAN_FRONTEND=noninteractive \
    PIP_CONSTRAINT=/build/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN apt-get update \
    && apt-get install --yes --no-install-recommends cmake g++ make python3-venv
COPY containers/constraints.txt /build/
RUN python3 -m venv /opt/cloudbench \
    && /opt/cloudbench/bin/pip install tensorflow-cpu==2.18.1 pyzmq==27.3.0
COPY scripts/build-horovod /build/
RUN /build/build-horovod /opt/cloudbench/bin/python

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
ENV HOME=/home/cloudbench USER=cloudbench PATH=/opt/cloudbench/bin:$PATH
USER cloudbench
WORKDIR /home/cloudbench
