#!/bin/bash
# Stops a gateway's pod without cutting an answer off: readiness fails, then it waits until no request runs.
# Envoy gets SIGTERM when this ends. The image has no curl.
#
# drain.sh ADMIN_PORT SETTLE_SECONDS LONGEST_SECONDS
#   SETTLE_SECONDS   until every proxy sends new connections elsewhere
#   LONGEST_SECONDS  what the longest request may take; after it, what still runs is cut off
set -u
admin_port=$1 settle=$2 longest=$3

# The answer of Envoy's administration interface, which listens on loopback only.
ask() (
  exec 3<>"/dev/tcp/127.0.0.1/${admin_port}" || exit 1
  printf '%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$1" "$2" >&3
  cat <&3
)

# From here on answers close their connections, so that clients open new ones elsewhere.
ask POST /healthcheck/fail >/dev/null || exit 0
sleep "$settle"
end=$((SECONDS + longest))
while ((SECONDS < end)); do
  running=$(ask GET '/stats?filter=http.requests.downstream_rq_active') || exit 0
  [[ $running =~ downstream_rq_active:\ 0 ]] && exit 0
  sleep 1
done
