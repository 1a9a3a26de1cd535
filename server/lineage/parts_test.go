package lineage

import (
	"reflect"
	"testing"
)

func TestCutLayers(t *testing.T) {
	top, below := layer{Space: 2, History: History{{Gen: 2, Last: 9}}}, layer{Space: 1, History: History{{Gen: 1, Last: 3}}}
	other := layer{Space: 3, History: History{{Gen: 2, Last: 9}}}
	deep := func(first, last uint16) part { return part{Range{first, last}, []layer{top, below}} }
	flat := func(first, last uint16) part { return part{Range{first, last}, []layer{top}} }
	whole := []part{deep(0, 9), {Range{10, 19}, []layer{other, below}}}
	cases := []struct {
		name   string
		parts  []part
		groups Range
		want   []part
	}{
		{"the first groups", whole, Range{0, 3}, []part{flat(0, 3), deep(4, 9), whole[1]}},
		{"the next ones join them", []part{flat(0, 3), deep(4, 9), whole[1]}, Range{4, 5}, []part{flat(0, 5), deep(6, 9), whole[1]}},
		{"in the middle", whole, Range{5, 6}, []part{deep(0, 4), flat(5, 6), deep(7, 9), whole[1]}},
		{"over a border", whole, Range{8, 12}, []part{deep(0, 7), flat(8, 9), {Range{10, 12}, []layer{other}}, {Range{13, 19}, whole[1].Layers}}},
		{"all", whole, Range{0, 19}, []part{flat(0, 9), {Range{10, 19}, []layer{other}}}},
		{"what is cut already", []part{flat(0, 9)}, Range{0, 9}, []part{flat(0, 9)}},
	}
	for _, c := range cases {
		if got := cutLayers(c.parts, c.groups); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: found %v, expected %v", c.name, got, c.want)
		}
	}
}

func TestRenumber(t *testing.T) {
	old := []part{{Range{0, 9}, make([]layer, 2)}, {Range{10, 19}, make([]layer, 3)}}
	numbers := [][]stateNumber{{{1, true}, {2, true}}, {{3, true}, {}, {4, true}}}
	parts := []part{{Range{0, 4}, make([]layer, 1)}, {Range{5, 9}, make([]layer, 2)}, {Range{10, 19}, make([]layer, 1)}}
	want := [][]stateNumber{{{1, true}}, {{1, true}, {2, true}}, {{3, true}}}
	if got := renumber(old, numbers, parts); !reflect.DeepEqual(got, want) {
		t.Errorf("found %v, expected %v", got, want)
	}
}
