#!/bin/sh
# Installs Debian packages, as root: install-debian-packages.sh NAME...
#
# redis-server is wanted for its program alone: the tests and the demo start servers of their own on free ports. Its
# package would start a service on the well-known port, now and at each boot. So the start is forbidden by a policy
# (policy-rc.d, Debian's means for that) while apt runs, and the service is disabled afterwards. It stays usable:
# `systemctl enable --now redis-server`.
set -eu
export DEBIAN_FRONTEND=noninteractive

policy=/usr/sbin/policy-rc.d
policy_note='# zkfence: no redis service while its package is installed; delete this file if it was left behind'

# A policy that the machine already has (container images forbid every start) is left alone.
if [ ! -e "$policy" ] || grep -qxF "$policy_note" "$policy"; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    # shellcheck disable=SC2016  # "$*" is for the policy: the service and the action
    printf '#!/bin/sh\n%s\ncase "$*" in *redis-server*) exit 101 ;; esac\n' "$policy_note" >"$policy"
    chmod 755 "$policy"
fi

# One broken third-party source fails the whole update; whether the lists will do, the installation decides.
apt-get update || echo 'apt-get update failed: going on with the lists that are there' >&2
# A machine's first minutes often belong to unattended-upgrades: wait for its lock.
apt-get -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends "$@"

case " $* " in
*' redis-server '*)
    if command -v systemctl >/dev/null; then
        systemctl disable redis-server
    fi
    ;;
esac
