package ledger_test

import "github.com/posthouse-io/posthouse/pkg/delivery"

// operationPlans is plans for the statements of operators' commands.
func operationPlans() map[string]planned {
	one, two := delivery.NewID().String(), delivery.NewID().String()
	anID, anIDs := "'"+one+"'", "'{"+one+","+two+"}'"
	filter := anID + `, 'ffffffff-ffff-ffff-ffff-ffffffffffff', 1000, '{retry,failed}', 't1', '', '', '', ''`
	return map[string]planned{
		"orderedAmong":     {anIDs, []string{"delivery_*_pkey"}},
		"lockQueuedRows":   {anIDs, []string{"queue_pkey"}},
		"lockDeliveries":   {anIDs, []string{"delivery_*_pkey"}},
		"recipientsOf":     {anIDs, []string{"recipient_*_pkey"}},
		"hasten":           {anIDs + `, '{1,1}', '{NULL,NULL}'`, []string{"queue_pkey"}},
		"requeue":          {anIDs + `, '{1,1}', '{a,a}', '{1,1}', '{1,1}', '{1,1}', '{NULL,NULL}', '{k,NULL}'`, []string{"queue_ordered"}},
		"dequeue":          {anIDs, []string{"queue_pkey"}},
		"moveDeliveries":   {`'retry', ` + anIDs + `, '{1,1}', '{1,1}', '{1,1}', '{1,1}', '{NULL,NULL}', NULL`, []string{"delivery_*_pkey"}},
		"moveRecipients":   {anIDs + `, 'refused', 'pending', '', ''`, []string{"recipient_*_pkey"}},
		"routePrepared":    {anID + `, 1, 1, ` + anID + `, 1`, []string{"queue_pkey"}},
		"markPrepared":     {anID + `, 1`, []string{"delivery_*_pkey"}},
		"putContent":       {anID + `, '\x00'`, []string{"content_*_pkey"}},
		"deleteRecipients": {anID, []string{"recipient_*_pkey"}},
		"insertJob":        {anID + `, 'retry', '{}', '{}', 'a', 'b', 1, ` + anID + `, 'queue', ` + anID + `, 1, true`, nil},
		"selectJob":        {anID, []string{"operation_job_pkey"}},
		"selectJobs":       {`50`, []string{"operation_job_pkey"}},
		"selectResults":    {anID + `, ` + anID + `, 1000`, []string{"operation_result_pkey"}},
		"takeJob":          {`'i', 15`, []string{"operation_job_running", "operation_job_pkey"}},
		"lockJob":          {anID + `, 'i'`, nil},
		"advanceJob":       {anID + `, 'end', ` + anID + `, 1, 1, 1, 15`, []string{"operation_job_pkey"}},
		"leaveJob":         {anID + `, 'i', ''`, []string{"operation_job_pkey"}},
		"lockJobState":     {anID, []string{"operation_job_pkey"}},
		"turnJob":          {anID + `, 'paused'`, []string{"operation_job_pkey"}},
		"insertResults":    {anID + `, ` + anIDs + `, '{queued,due}'`, nil},
		"resultsAmong":     {anID + `, ` + anIDs, nil},
		"pageOfQueue":      {filter, []string{"queue_pkey", "delivery_*_pkey"}},
		"pageOfArchive":    {filter, []string{"dead_letter_aggregate", "delivery_*_pkey"}},
		"lockLetters":      {`'{a.1,b.2}'`, []string{"dead_letter_pkey"}},
		"triageLetters":    {`'{a.1,b.2}', 'resolved', 'r'`, []string{"dead_letter_pkey"}},
		"selectAudit":      {`'', '', ` + anID + `, 50`, []string{"audit_pkey"}},
		"selectAuditOf":    {`'x', ` + anID + `, '', '', ` + anID + `, 50`, []string{"audit_target", "operation_result_delivery"}},
	}
}

func operationsUnplanned() map[string]string {
	return map[string]string{"jobBounds": "reads no table", "anyWorker": "a row per instance"}
}
