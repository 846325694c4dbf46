//go:build !planted

package planted_test

import (
	"testing"

	"github.com/posthouse-io/posthouse/pkg/planted"
)

// A usual build has none of it, whatever the environment says.
func TestNothingIsPlanted(t *testing.T) {
	t.Setenv("CHAOS_PLANTED", planted.Ack)
	if planted.Is(planted.Ack) {
		t.Error("a fault is planted in a usual build")
	}
	if list := planted.Among(planted.Ack, []int{1}); list != nil {
		t.Errorf("Among gives %v", list)
	}
	if sql := planted.SQL(planted.Ack, "SELECT 1", "1", "2"); sql != "SELECT 1" {
		t.Errorf("SQL gives %q", sql)
	}
}
