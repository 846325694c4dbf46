package streams

import "embed"

//go:embed schema/*.json
var schemas embed.FS

// Schema returns the JSON Schema (2020-12) of a message: "send.mail",
// "inbound.document",
// "event.delivery", "event.document", "event.lane", "event.quota", "event.alert" or "dlq". An unknown name gives nil.
func Schema(name string) []byte {
	b, err := schemas.ReadFile("schema/" + name + ".json")
	if err != nil {
		return nil
	}
	return b
}
