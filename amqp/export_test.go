package amqp

import "time"

// RetryMost sets how long a Broker waits between two tries to connect.
func RetryMost(cfg *Config, d time.Duration) { cfg.retryMost = d }
