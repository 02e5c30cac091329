#!/bin/sh
# Writes constraints.txt: the version and the sha256 of every file of every package that pyproject.toml asks for (run
# time, all extras, group dev), for Python 3.11 and later on every platform; and constraints-bench.txt, in the same way
# for group bench. Pins stay as they are where they can: `lock.sh --upgrade` or `lock.sh --upgrade-package NAME` moves
# them. Needs the network.
set -eu

cd "$(dirname "$0")/.."

# uv is of use here only, so it gets an environment of its own and is no dependency.
uv=build/uv
[ -x "$uv/bin/uv" ] || {
    .venv/bin/python -m venv "$uv"
    "$uv/bin/python" -m pip --disable-pip-version-check install --quiet uv
}

# The file must not depend on, or tell of, the machine that it was made on: no mirror, no folder of wheels.
unset UV_INDEX UV_DEFAULT_INDEX UV_INDEX_URL UV_EXTRA_INDEX_URL UV_FIND_LINKS UV_NO_INDEX UV_EXCLUDE_NEWER \
    UV_INDEX_STRATEGY UV_OVERRIDE UV_CONSTRAINT UV_BUILD_CONSTRAINT
compile() {
    "$uv/bin/uv" pip compile --universal --python-version 3.11 --no-build \
        --generate-hashes --no-config --no-emit-index-url --no-emit-find-links \
        --custom-compile-command 'make constraints' --quiet "$@"
}
compile pyproject.toml --all-extras --group dev --output-file constraints.txt "$@"
# What the benchmarks add, in the versions of constraints.txt where both have a package.
compile --group bench --constraints constraints.txt --output-file constraints-bench.txt "$@"
