-- floor: 2
-- Not 1: a library of schema 1 would leave checkpoint and initial as they are
-- when it moves the cursor and changes the state.
ALTER TABLE {{executions}} ADD COLUMN attempt_progress TEXT; -- of the open attempt
ALTER TABLE {{executions}} ADD COLUMN cause TEXT;
ALTER TABLE {{executions}} ADD COLUMN turn TEXT NOT NULL DEFAULT '';
ALTER TABLE {{executions}} ADD COLUMN reason_by TEXT NOT NULL DEFAULT '';
ALTER TABLE {{executions}} ADD COLUMN rerun_of TEXT;
ALTER TABLE {{executions}} ADD COLUMN rerun_as TEXT;
ALTER TABLE {{executions}} ADD COLUMN erased_at INTEGER;
ALTER TABLE {{executions}} ADD COLUMN checkpoint TEXT;
ALTER TABLE {{executions}} ADD COLUMN initial TEXT; -- last: it can be as large as the state

-- For the lists. Nothing here changes before an execution ends, and one that
-- completes, as most do, is in the first only.
CREATE INDEX {{executions_finished}} ON {{executions}} (status, finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX {{executions_unsuccessful}} ON {{executions}} (id, status)
	WHERE status IN ('compensated', 'failed', 'compensation_failed', 'cancelled');

ALTER TABLE {{audit}} ADD COLUMN request TEXT NOT NULL DEFAULT '';
ALTER TABLE {{audit}} ADD COLUMN digest TEXT NOT NULL DEFAULT '';
ALTER TABLE {{audit}} ADD COLUMN detail TEXT;
CREATE UNIQUE INDEX {{audit_request}} ON {{audit}} (execution, request) WHERE request <> '';
