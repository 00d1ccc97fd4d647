#!/bin/sh
# Installs what the tests need and the machine lacks: PostgreSQL, RabbitMQ, PgBouncer, a C
# compiler for the race detector, and Chromium with a font for the console's pages. On Debian and its kin, as root; elsewhere it says what is missing
# and leaves it at that. No service of the machine is started: the tests start private ones.
set -eu

missing=
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 ||
	[ -n "${LEVERET_TEST_POSTGRES:-}" ] || missing="$missing postgresql"
ls /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server >/dev/null 2>&1 ||
	ls /opt/rabbitmq/sbin/rabbitmq-server >/dev/null 2>&1 ||
	[ -n "${LEVERET_TEST_AMQP:-}" ] || missing="$missing rabbitmq-server"
command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ] || missing="$missing pgbouncer"
command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || missing="$missing chromium fonts-dejavu-core"
command -v "${CC:-gcc}" >/dev/null 2>&1 || missing="$missing gcc libc6-dev"

[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "install.sh: missing:$missing (names of Debian packages; installed automatically as root on Debian only)" >&2
	exit 0
fi

echo "install.sh: installing$missing" >&2
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
# shellcheck disable=SC2086 # a list of words
apt-get install -y -qq --no-install-recommends $missing >&2
