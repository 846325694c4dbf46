package bus

// Names of headers. NATS compares them with their case.
const (
	HeaderMsgID          = "Nats-Msg-Id"          // stable id that the stream deduplicates by
	HeaderExpectedStream = "Nats-Expected-Stream" // the server refuses any other
	HeaderEventID        = "Posthouse-Event-Id"   // id of the event in PostgreSQL
	HeaderTraceParent    = "traceparent"          // W3C Trace Context
	HeaderTraceState     = "tracestate"           // W3C Trace Context
)
