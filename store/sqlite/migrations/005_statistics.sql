-- floor: 3
CREATE INDEX {{executions_created}} ON {{executions}} (created_at, saga);

CREATE INDEX {{attempts_finished}} ON {{attempts}} (finished_at);

CREATE INDEX {{attempts_failed}} ON {{attempts}} (finished_at, failure_class, step) WHERE failure_class IS NOT NULL;
