#!/bin/sh
# Sets up everything that the Makefile's targets need: system packages that are missing, and .venv with exactly the
# packages of constraints.txt. A second run finds all of it in place, changes nothing and needs no network.
#
# `setup.sh bench` adds what the benchmarks alone need: a Java compiler, Curator, and constraints-bench.txt.
set -eu

for_bench=${1:-}
cd "$(dirname "$0")/.."
root=$(pwd -P)
venv=$root/.venv
log=$root/build/setup.log

say() {
    printf 'set-up: %s\n' "$*" >&2
}

die() {
    say "$*"
    exit 1
}

# quietly WHAT COMMAND...: one line of progress; the command's own output is shown only when it fails.
quietly() {
    say "$1"
    shift
    printf '\n$ %s\n' "$*" >>"$log"
    if ! "$@" >>"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        die "that failed; the whole output is in $log"
    fi
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# --- what the system has ---------------------------------------------------------------------------------------------

# Prints the first Python that is new enough and can make a virtual environment with pip in it. (Debian's python3 cannot
# until python3-venv is there; a pyenv shim may stand for a version that is not selected.)
find_python() {
    for candidate in python3.13 python3.12 python3.11 python3; do
        if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# is_at_least MAJOR MINOR VERSION
is_at_least() {
    major=${3%%.*}
    minor=${3#*.}
    minor=${minor%%.*}
    [ "${major:-0}" -gt "$1" ] || { [ "${major:-0}" -eq "$1" ] && [ "${minor:-0}" -ge "$2" ]; }
}

# These three look where zkfence.testing looks. (On macOS `java` exists, and fails, where there is no Java.)
have_java() {
    java=java
    if [ -n "${JAVA_HOME:-}" ] && have "$JAVA_HOME/bin/java"; then
        java=$JAVA_HOME/bin/java
    fi
    is_at_least 11 0 "$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9.]*\).*/\1/p')"
}

have_zookeeper() {
    if [ -n "${ZKFENCE_ZOOKEEPER_CLASSPATH:-}" ] || [ -n "${ZOOKEEPER_HOME:-}" ]; then
        return
    fi
    # Packages come with 3.4 (Ubuntu 22.04), which is too old and has no jar for jute yet, or with 3.8 and later.
    [ -e /usr/share/java/zookeeper.jar ] && [ -e /usr/share/java/zookeeper-jute.jar ]
}

have_redis() {
    redis=${ZKFENCE_REDIS_SERVER:-$(command -v redis-server || command -v valkey-server)}
    [ -n "$redis" ] && is_at_least 6 2 "$("$redis" --version 2>/dev/null | sed -n 's/.* v=\([0-9.]*\).*/\1/p')"
}

have_javac() {
    have "${JAVA_HOME:-}/bin/javac" || have javac
}

have_curator() {
    [ -e /usr/share/java/curator-recipes.jar ]
}

# Prints the Debian packages for what is missing.
missing_packages() {
    if ! is_venv_whole && ! find_python >/dev/null; then
        # Ubuntu 22.04 and what is made from it: python3 is 3.10, and 3.11 has a name of its own.
        # shellcheck source=/dev/null
        codename=$(. /etc/os-release 2>/dev/null && printf %s "${UBUNTU_CODENAME:-}") || codename=
        if [ "$codename" = jammy ]; then
            printf 'python3.11 python3.11-venv '
        else
            printf 'python3 python3-venv '
        fi
    fi
    have_java || printf 'default-jre-headless '
    have_zookeeper || printf 'libzookeeper-java '
    have_redis || printf 'redis-server '
    if [ "$for_bench" ]; then
        have_javac || printf 'default-jdk-headless '
        have_curator || printf 'libcurator-recipes-java '
    fi
}

ask_for_other_systems() {
    say 'this set-up can install Debian packages only. Please install what is missing, and run this again:'
    if [ "$(uname)" = Darwin ]; then
        say '  brew install python@3.13 openjdk zookeeper redis     (and put openjdk on PATH, as brew tells)'
        # shellcheck disable=SC2016  # the $(…) is for the reader's shell
        say '  export ZOOKEEPER_HOME="$(brew --prefix zookeeper)/libexec"'
    else
        say '  Python 3.11, 3.12 or 3.13 with its venv module; Java 11 or later; redis-server 6.2 or later;' \
            'an Apache ZooKeeper release from 3.6 on, unpacked, with ZOOKEEPER_HOME set to its folder'
    fi
    die "(missing, by their Debian names: $*)"
}

install_packages() {
    have apt-get || ask_for_other_systems "$@"
    if [ "$(id -u)" = 0 ]; then
        sudo=
    elif have sudo && { sudo -n true 2>/dev/null || { [ -t 2 ] && sudo -v; }; }; then
        sudo=sudo
    else
        say 'system packages are missing; this is not root, and sudo does not help. As root, please run'
        say "  apt-get update && apt-get install --no-install-recommends $*"
        die 'and then this again'
    fi
    quietly "installing Debian packages: $*" $sudo sh scripts/install-debian-packages.sh "$@"
}

# --- the virtual environment -----------------------------------------------------------------------------------------

# .venv carries copies of what it was made from, each put there when that step was finished:
#   made-from/place             its own path and Python's version: a copied, moved or half-made .venv is of no use
#   made-from/constraints.txt   the packages
#   made-from/pyproject.toml    zkfence itself, installed editable: version, entry points, extras
#   made-from/constraints-bench.txt   the packages for the benchmarks, where they were asked for

venv_place() {
    "$venv/bin/python" -c 'import sys; print(sys.prefix, *sys.version_info[:2])'
}

is_venv_whole() {
    [ "$(cat "$venv/made-from/place" 2>/dev/null)" = "$(venv_place 2>/dev/null)" ] &&
        cmp -s constraints.txt "$venv/made-from/constraints.txt"
}

is_project_installed() {
    cmp -s pyproject.toml "$venv/made-from/pyproject.toml"
}

is_bench_installed() {
    [ -z "$for_bench" ] || cmp -s constraints-bench.txt "$venv/made-from/constraints-bench.txt"
}

pip() {
    PIP_PROGRESS_BAR=off "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"
}

make_venv() {
    python=$(find_python)
    rm -rf "$venv/made-from" # first: a removal that is interrupted must not leave what looks whole
    rm -rf "$venv"
    quietly "making .venv with $("$python" -V)" "$python" -m venv "$venv"
    # Wheels only: nothing is built from source here, by tools of a version that no one chose. They are kept, so that
    # the tests can install zkfence's own wheel with its dependencies into further environments without a network.
    quietly 'downloading the packages of constraints.txt' \
        pip download --no-deps --only-binary :all: --require-hashes -r constraints.txt -d "$venv/wheelhouse"
    quietly 'installing them' \
        pip install --no-deps --no-index --find-links "$venv/wheelhouse" --require-hashes -r constraints.txt
    mkdir "$venv/made-from"
    venv_place >"$venv/made-from/place"
    cp constraints.txt "$venv/made-from/"
}

install_project() {
    rm -f "$venv/made-from/pyproject.toml"
    quietly 'installing zkfence, editable' pip install --no-deps --no-build-isolation --no-index -e .
    cp pyproject.toml "$venv/made-from/"
}

install_bench() {
    quietly 'installing the packages of constraints-bench.txt' \
        pip install --no-deps --only-binary :all: --require-hashes -r constraints-bench.txt
    cp constraints-bench.txt "$venv/made-from/"
}

# --- the run ---------------------------------------------------------------------------------------------------------

missing=$(missing_packages)
if [ -z "$missing" ] && is_venv_whole && is_project_installed && is_bench_installed; then
    exit 0
fi

mkdir -p build
if have flock; then # two set-ups of one clone at a time would pull .venv from under each other
    exec 9>build/setup.lock
    flock 9
fi
: >"$log"

missing=$(missing_packages)
if [ -n "$missing" ]; then
    # shellcheck disable=SC2086  # a list of words
    install_packages $missing
    missing=$(missing_packages)
    if [ -n "$missing" ]; then
        say "still missing or too old after the installation: $missing"
        say 'Debian 12, Ubuntu 24.04 and later ones have packages that are new enough. Elsewhere, please install'
        say '  redis-server 6.2 or later; a ZooKeeper release from 3.6 on, unpacked, with ZOOKEEPER_HOME set to it'
        die 'and run this again'
    fi
fi
is_venv_whole || make_venv
is_project_installed || install_project
is_bench_installed || install_bench
say 'done'
