-- What was claimed and given back unused can be found by its lane.

-- +goose Up

COMMENT ON COLUMN queue.claimed_at IS 'leased: when the owner took it: with owner and fence, the record that an attempt may be under way. waiting: when it was last taken, of a row that was given back unused, such as to an open breaker; a reset of its lane makes it due. NULL otherwise.';

CREATE INDEX queue_given_back ON queue (lane) WHERE state = 'waiting' AND claimed_at IS NOT NULL;
