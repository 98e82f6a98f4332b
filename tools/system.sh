#!/usr/bin/env bash
# Installs a browser and Prometheus from the distribution, for the tests that look at pages and ask dashboards' expressions.
# Only root on a distribution with apt may; elsewhere, and where apt does not answer, such tests are skipped by name.
set -euo pipefail

say() { echo "set-up: $*"; }
missing=()
for each in chromium:chromium chromedriver:chromium-driver prometheus:prometheus; do
    command -v "${each%%:*}" >/dev/null || missing+=("${each#*:}")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "${missing[*]}: not there, and not to be installed by this user; their tests are skipped"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
say "installing ${missing[*]} with apt"
apt() { timeout "$1" apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=10 "${@:2}" </dev/null >/dev/null 2>&1; }
# A package that starts a service when it is installed shall not.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && trap 'rm -f "$policy"' EXIT
fi
if apt 60 update && apt 240 install -y --no-install-recommends "${missing[@]}"; then
    say "${missing[*]}: installed"
else
    say "${missing[*]}: apt cannot install them; their tests are skipped"
fi
