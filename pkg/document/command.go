package document

import (
	"fmt"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Command is what an operator wants of one document: replay, reverify.
type Command struct {
	delivery.Warrant
	ID     string `json:"id"` // SBDH instance id, or the document's own
	Tenant string `json:"tenant,omitempty"`
}

// Check says what is wrong with it.
func (c Command) Check() error {
	if c.ID == "" || len(c.ID) > MaxID {
		return fmt.Errorf("id is empty or too long")
	}
	return c.Warrant.Check()
}

// C4Report is the receiver's country, told late by the backend.
type C4Report struct {
	ID      string `json:"id"`
	Tenant  string `json:"tenant,omitempty"`
	Country string `json:"country"` // two capitals
}

// MLSCommand is what the backend wants C2 to be told.
type MLSCommand struct {
	ID     string     `json:"id"`
	Tenant string     `json:"tenant,omitempty"`
	Code   Code       `json:"code"`
	Text   string     `json:"text,omitempty"`
	Issues []MLSIssue `json:"issues,omitempty"`
}

// MLSAnswer says what came of it: sent, or recorded.
type MLSAnswer struct {
	Status   string  `json:"status"`
	Document *Status `json:"document"`
}
