package postgres

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leveret-go/leveret/store/internal/rows"
)

// begin names the isolation, because a role's default may be another one.
const begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

// statements are the texts that do not depend on arguments, written for one
// schema. Parameters whose type a context does not tell have a cast: the exec
// and simple_protocol modes of pgx do not ask the server for types.
type statements struct {
	tables rows.Tables

	id       string
	limits   string // sets the time-outs of one statement
	limitsTx string // and those of a transaction
	// setLimits sets those of a transaction without a query, so that an isolation
	// level can still be chosen.
	setLimits string
	insert    string
	conflict  string // after an insert did nothing: who was in the way
	holder    string
	get       string
	live      string
	children  string
	lock      string
	attempt   string
	audit     string
	wake      string
	release   string // wakes, and gives a key
	opponent  string // holds the key that release gives
	claim     string // with %s for more conditions, and %d for the limit
	renew     string
	delete    string

	insertTagged string // an execution that has tags

	eraseAttempts, eraseAudit string

	cell, cells, addCell, setCell, deleteCell string

	claimEvents, removeEvents, oldestEvent string

	writes sync.Map // of shape to text
}

// A shape is what the text of a write depends on.
type shape struct {
	rare            bool // RareColumns are bound; else they become NULL
	state, erase    bool
	attempts, audit int
}

// Beyond this many closed attempts or audit entries a write takes several
// statements, so that there are not too many shapes.
const maxShape = 4

func (s *statements) build(t rows.Tables, cfg Config) {
	s.tables = t
	executions, attempts, audit, cells := t.Name(rows.Executions), t.Name(rows.Attempts), t.Name(rows.Audit), t.Name(rows.Cells)
	// pgx scans the null of a json column as NULL, which a checkpoint may be.
	read := strings.Replace(rows.ListOf("x", rows.Columns), `x."checkpoint"`, `x."checkpoint"::text`, 1)

	s.id = fmt.Sprintf(`SELECT value::uuid FROM %s WHERE name = 'store'`, t.Name(rows.Meta))

	ms := func(d time.Duration) int64 { return d.Milliseconds() }
	s.limits = fmt.Sprintf(`SELECT set_config('lock_timeout', '%d', true), set_config('statement_timeout', '%d', true)`,
		ms(cfg.LockTimeout), ms(cfg.StatementTimeout))
	s.limitsTx = fmt.Sprintf(`%s, set_config('idle_in_transaction_session_timeout', '%d', true)`,
		s.limits, ms(2*cfg.StatementTimeout))

	s.setLimits = fmt.Sprintf(`SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d`,
		ms(cfg.LockTimeout), ms(cfg.StatementTimeout), ms(2*cfg.StatementTimeout))

	s.insert = fmt.Sprintf(`INSERT INTO %s (%s) VALUES (%s) ON CONFLICT DO NOTHING`,
		executions, rows.List(rows.Columns), rows.Marks(rows.Dollar, 1, len(rows.Columns)))
	s.insertTagged = fmt.Sprintf(`WITH x AS (
	%s RETURNING id
), t AS (
	INSERT INTO %s (name, value, execution) SELECT j.key, j.value, x.id FROM x, json_each_text($%d::json) AS j
)
SELECT id FROM x`, s.insert, t.Name(rows.Tags), slices.Index(rows.Columns, "tags")+1)
	s.conflict = fmt.Sprintf(`SELECT id FROM %s WHERE id = $1
UNION ALL SELECT id FROM %s WHERE saga = $2 AND key = $3 AND key <> '' AND %s LIMIT 1`, executions, executions, rows.HoldsKey)
	s.holder = fmt.Sprintf(`SELECT id FROM %s WHERE saga = $1 AND key = $2 AND key <> '' AND %s AND id <> $3`, executions, rows.HoldsKey)
	s.get = fmt.Sprintf(`SELECT %s FROM %s AS x WHERE id = $1`, read, executions)
	s.lock = s.get + ` FOR NO KEY UPDATE`
	s.live = fmt.Sprintf(`SELECT %s FROM %s AS x WHERE saga = $1 AND key = $2 AND key <> '' AND %s`, read, executions, rows.HoldsKey)
	s.children = fmt.Sprintf(`SELECT %s FROM %s AS x WHERE parent = $1 AND id > $2 AND ($3::text = '' OR parent_step = $3::text)
ORDER BY id LIMIT $4::bigint`, read, executions)

	s.attempt = fmt.Sprintf(`INSERT INTO %s AS k (%s) VALUES (%s)%s`,
		attempts, rows.List(rows.AttemptColumns), rows.Marks(rows.Dollar, 1, len(rows.AttemptColumns)), onKnownAttempt)
	s.audit = fmt.Sprintf(`INSERT INTO %s (%s) VALUES (%s)`,
		audit, rows.List(rows.AuditColumns), rows.Marks(rows.Dollar, 1, len(rows.AuditColumns)))
	s.wake = fmt.Sprintf(`UPDATE %s SET revision = revision + 1,
	due_at = CASE WHEN attempt_number IS NULL THEN least(due_at, $2::timestamptz) ELSE due_at END,
	offered_at = CASE WHEN attempt_number IS NOT NULL THEN offered_at END
WHERE id = $1 AND status IN ('running', 'waiting', 'compensating')`, executions)
	s.release = fmt.Sprintf(`UPDATE %s SET revision = revision + 1, follows = NULL,
	due_at = CASE WHEN attempt_number IS NULL AND status <> 'halted' THEN least(due_at, $2::timestamptz) ELSE due_at END,
	offered_at = CASE WHEN attempt_number IS NOT NULL OR status = 'halted' THEN offered_at END
WHERE id = $1 AND %s`, executions, rows.Unfinished)
	s.opponent = fmt.Sprintf(`SELECT id, saga, key FROM %s
WHERE (saga, key) = (SELECT r.saga, r.key FROM %s AS r WHERE r.id = $1) AND key <> '' AND %s AND id <> $1`,
		executions, executions, rows.HoldsKey)

	// The rows are chosen and locked before, in a step of its own, because a
	// subquery with SKIP LOCKED and LIMIT may otherwise be run more than once.
	// The limit is no parameter: a generic plan would take it for a tenth of
	// all rows, and read the whole table to join them.
	s.claim = fmt.Sprintf(`WITH due AS MATERIALIZED (
	SELECT id, due_at AS was FROM %s
	WHERE due_at <= $1::timestamptz%%s ORDER BY due_at, id LIMIT %%d FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE %s AS x SET due_at = $2::timestamptz, offered_at = coalesce(x.offered_at, $1::timestamptz)
FROM due WHERE x.id = due.id
RETURNING %s, due.was`, executions, executions, read)

	// l holds the newest version of each row that nobody else locks; a lease
	// whose row is there, but not in l, is locked. That is asked without EXISTS,
	// which the server may answer by reading all ids into a hash table.
	s.renew = fmt.Sprintf(`WITH q AS MATERIALIZED (
	SELECT id::uuid AS id, step, direction, epoch, number, worker, progress, ord
	FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::int[], $6::text[], $10::text[])
		WITH ORDINALITY AS u(id, step, direction, epoch, number, worker, progress, ord)
), l AS MATERIALIZED (
	SELECT x.id, x.step, x.direction, x.epoch, x.attempt_number, x.attempt_worker, x.attempt_lease_until, x.request
	FROM %[1]s AS x WHERE x.id IN (SELECT q.id FROM q) FOR NO KEY UPDATE OF x SKIP LOCKED
), h AS MATERIALIZED (
	SELECT q.ord, q.progress, l.id, l.attempt_lease_until <= $7::timestamptz AS lapsed,
		coalesce(l.request->>'turn', '') <> '' AS interrupted
	FROM q JOIN l ON l.id = q.id AND l.step = q.step AND l.direction = q.direction AND l.epoch = q.epoch
		AND l.attempt_number = q.number AND l.attempt_worker = q.worker
), u AS (
	UPDATE %[1]s AS x SET attempt_lease_until = $8::timestamptz, due_at = $9::timestamptz,
		offered_at = CASE WHEN o.lapsed THEN NULL ELSE x.offered_at END,
		attempt_progress = coalesce(o.progress::json, x.attempt_progress)
	FROM (SELECT DISTINCT ON (id) id, lapsed, progress FROM h ORDER BY id, progress IS NULL, ord DESC) AS o WHERE x.id = o.id
)
SELECT q.ord, CASE
	WHEN h.ord IS NOT NULL AND h.interrupted THEN 'interrupted'
	WHEN h.ord IS NOT NULL THEN 'held'
	WHEN l.id IS NULL AND (SELECT true FROM %[1]s AS e WHERE e.id = q.id) THEN 'locked'
	ELSE 'lost' END
FROM q LEFT JOIN h ON h.ord = q.ord LEFT JOIN l ON l.id = q.id`, executions)

	// As in renew, l holds the newest versions of the rows. Arrays, not joins,
	// name the rows to delete: any number of them is found by an index.
	s.delete = fmt.Sprintf(`WITH l AS MATERIALIZED (
	SELECT id, revision FROM %s WHERE id = ANY ($1::text[]::uuid[]) AND NOT %s FOR UPDATE SKIP LOCKED
), g AS MATERIALIZED (
	SELECT l.id FROM l
	WHERE EXISTS (SELECT FROM unnest($1::text[], $2::bigint[]) AS u(id, revision) WHERE u.id::uuid = l.id AND u.revision = l.revision)
), a AS (
	DELETE FROM %s WHERE execution = ANY (ARRAY(SELECT id FROM g))
), d AS (
	DELETE FROM %s WHERE execution = ANY (ARRAY(SELECT id FROM g))
), t AS (
	%s
)
DELETE FROM %s WHERE id = ANY (ARRAY(SELECT id FROM g)) RETURNING id, revision`,
		executions, rows.Unfinished, attempts, audit, deleteTags(t, "g"), executions)

	s.eraseAttempts = fmt.Sprintf(`UPDATE %s SET failure_message = CASE WHEN failure_message IS NOT NULL THEN '' END, stack = '', reason = ''
WHERE execution = $1`, attempts)
	s.eraseAudit = fmt.Sprintf(`UPDATE %s SET reason = '', detail = NULL WHERE execution = $1`, audit)

	s.cell = fmt.Sprintf(`SELECT value, revision FROM %s WHERE name = $1`, cells)
	s.cells = fmt.Sprintf(`SELECT name, value, revision FROM %s WHERE starts_with(name, $1) ORDER BY name`, cells)
	s.addCell = fmt.Sprintf(`INSERT INTO %s (name, value, revision) VALUES ($1, $2, 1) ON CONFLICT DO NOTHING`, cells)
	s.setCell = fmt.Sprintf(`UPDATE %s SET value = $2, revision = revision + 1 WHERE name = $1 AND revision = $3`, cells)
	s.buildEvents(t)

	s.deleteCell = fmt.Sprintf(`DELETE FROM %s WHERE name = $1 AND revision = $2`, cells)
}

// buildEvents writes the statements of the outbox. Chosen and locked before, as in
// claim; the order is made again of what the update returns.
func (s *statements) buildEvents(t rows.Tables) {
	events := t.Name(rows.Events)
	s.claimEvents = fmt.Sprintf(`WITH due AS MATERIALIZED (
	SELECT execution, revision FROM %s WHERE due_at <= $1::timestamptz
	ORDER BY at, execution, revision LIMIT $3::bigint FOR UPDATE SKIP LOCKED
), e AS (
	UPDATE %s AS o SET due_at = $2::timestamptz FROM due
	WHERE o.execution = due.execution AND o.revision = due.revision
	RETURNING %s
)
SELECT * FROM e ORDER BY at, execution, revision`, events, events, rows.ListOf("o", rows.EventColumns))
	s.removeEvents = fmt.Sprintf(`DELETE FROM %s WHERE (execution, revision) IN (
	SELECT u.execution::uuid, u.revision FROM unnest($1::text[], $2::bigint[]) AS u(execution, revision))`, events)
	s.oldestEvent = fmt.Sprintf(`SELECT min(at) FROM %s`, events)
}

// deleteTags returns the statement that deletes the tags of the executions whose
// ids are in a CTE of this name. Each is looked for by itself, with the index,
// however many a planner takes them to be.
func deleteTags(t rows.Tables, ids string) string {
	tags := t.Name(rows.Tags)
	return fmt.Sprintf(`DELETE FROM %s WHERE ctid = ANY (ARRAY(
		SELECT (SELECT k.ctid FROM %s AS k WHERE k.name = j.key AND k.value = j.value AND k.execution = o.id)
		FROM %s AS o, json_each_text(o.tags) AS j WHERE o.id = ANY (ARRAY(SELECT id FROM %s))
	))`, tags, tags, t.Name(rows.Executions), ids)
}

// onKnownAttempt takes over what came late, once.
const onKnownAttempt = `
ON CONFLICT (execution, step, direction, epoch, number)
DO UPDATE SET late = EXCLUDED.late, late_status = EXCLUDED.late_status WHERE k.late_status = ''`

var (
	attemptTypes = []string{
		"uuid", "text", "text", "int", "int", "text", "text", "timestamptz", "timestamptz", "timestamptz",
		"text", "text", "text", "text", "text", "bool", "text",
	}
	auditTypes = []string{"uuid", "timestamptz", "text", "text", "text", "text", "text", "text", "text", "json"}
)

// write returns the statement that writes an execution at its revision,
// together with its closed attempts and audit entries, and answers with the
// number of executions written: 1 or 0, and then nothing else either. The
// fence is evaluated on the newest version of the row, after the wait for its
// lock. The parameters are those of UpdateColumns, those of RareColumns and of
// StateColumns if these are written, id and revision, and those of the rows in
// order. Up to 64 of them pgx keeps the memory that it needs for them.
func (s *statements) write(sh shape) string {
	if text, ok := s.writes.Load(sh); ok {
		return text.(string)
	}
	var b strings.Builder
	n := len(rows.UpdateColumns) + 1
	fmt.Fprintf(&b, "WITH x AS (\n\tUPDATE %s SET %s", s.tables.Name(rows.Executions), rows.Sets(rows.Dollar, 1, rows.UpdateColumns))
	if sh.rare {
		b.WriteString(", " + rows.Sets(rows.Dollar, n, rows.RareColumns))
		n += len(rows.RareColumns)
	} else {
		null := func(int) string { return "NULL" }
		b.WriteString(", " + rows.Sets(null, n, rows.RareColumns))
	}
	if sh.state {
		b.WriteString(", " + rows.Sets(rows.Dollar, n, rows.StateColumns))
		n += len(rows.StateColumns)
	}
	if sh.erase {
		b.WriteString(", tags = NULL")
	}
	fmt.Fprintf(&b, "\n\tWHERE id = $%d AND revision = $%d RETURNING id\n)", n, n+1)
	n += 2
	insert := func(name, table, suffix string, columns, types []string, count int) {
		if count == 0 {
			return
		}
		list := rows.List(columns)
		fmt.Fprintf(&b, ", %s AS (\n\tINSERT INTO %s AS k (%s)\n\tSELECT %s FROM x, (VALUES ", name, s.tables.Name(table), list, rows.ListOf("v", columns))
		for i := range count {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteByte('(')
			for _, t := range types {
				fmt.Fprintf(&b, "$%d::%s, ", n, t)
				n++
			}
			fmt.Fprintf(&b, "%d)", i)
		}
		fmt.Fprintf(&b, ") AS v (%s, ord) ORDER BY v.ord%s\n)", list, suffix)
	}
	insert("a", rows.Attempts, onKnownAttempt, rows.AttemptColumns, attemptTypes, sh.attempts)
	insert("d", rows.Audit, "", rows.AuditColumns, auditTypes, sh.audit)
	if sh.erase {
		fmt.Fprintf(&b, ", t AS (\n\t%s\n)", deleteTags(s.tables, "x"))
	}
	b.WriteString("\nSELECT count(*) FROM x")
	text, _ := s.writes.LoadOrStore(sh, b.String())
	return text.(string)
}
