# Keeps the folder $1 of a test server: waits until the process that holds the other end of standard
# input has ended, or closed it, then ends every process that works in the folder and removes it.
#
# Without the folder no process can begin to work in it. So one that was being started meanwhile is
# either found by the search after the removal, or fails to start.
dir=$1
trap '' HUP INT QUIT TERM
cat >/dev/null

living() {
	find /proc/[0-9]* -maxdepth 1 -name cwd \
		\( -lname "$dir" -o -lname "$dir (deleted)" -o -lname "$dir/*" \) 2>/dev/null | cut -d/ -f3
}

# SIGQUIT first: PostgreSQL then gives its shared memory back.
signal=QUIT
round=0
while [ "$round" -lt 600 ]; do
	pids=$(living)
	if [ -z "$pids" ]; then
		rm -rf "$dir"
		pids=$(living)
		if [ -z "$pids" ] && [ ! -e "$dir" ]; then
			exit 0
		fi
	fi
	if [ "$round" -eq 0 ] || [ "$signal" = KILL ]; then
		for pid in $pids; do
			kill -"$signal" "$pid" 2>/dev/null
		done
	fi
	round=$((round + 1))
	if [ "$round" -eq 50 ]; then
		signal=KILL
	fi
	sleep 0.05
done
exit 1
