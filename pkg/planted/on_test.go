//go:build planted

package planted_test

import (
	"testing"

	"github.com/posthouse-io/posthouse/pkg/planted"
)

// One fault is planted at a time; a text that is not there is told.
func TestOneIsPlanted(t *testing.T) {
	t.Setenv("CHAOS_PLANTED", planted.Ack)
	if !planted.Is(planted.Ack) || planted.Is(planted.Fence) {
		t.Error("another fault than the one asked for")
	}
	if sql := planted.SQL(planted.Ack, "SELECT 1", "1", "2"); sql != "SELECT 2" {
		t.Errorf("SQL gives %q", sql)
	}
	if sql := planted.SQL(planted.Fence, "SELECT 1", "1", "2"); sql != "SELECT 1" {
		t.Errorf("SQL gives %q", sql)
	}
	defer func() {
		if recover() == nil {
			t.Error("a text that is not there was replaced")
		}
	}()
	planted.SQL(planted.Ack, "SELECT 1", "3", "2")
}
