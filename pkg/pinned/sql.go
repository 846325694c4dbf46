package pinned

// pinPlanner holds for the current transaction only: every hot statement is a
// nested loop over an index, whatever the statistics of the moment say. Plans
// are kept generic, so a long array does not cost a new plan each time.
const pinPlanner = `
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)`
