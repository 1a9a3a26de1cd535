package lineage

// cutLayers has key groups see their top layers only. Neighbours that see the same become one.
func cutLayers(parts []part, groups Range) []part {
	var cut []part
	for _, p := range parts {
		if len(p.Layers) == 1 || !p.overlaps(groups) {
			cut = appendPart(cut, p)
			continue
		}
		if p.First < groups.First {
			cut = appendPart(cut, part{Range{p.First, groups.First - 1}, p.Layers})
		}
		top := append([]layer(nil), p.Layers[0])
		cut = appendPart(cut, part{Range{max(p.First, groups.First), min(p.Last, groups.Last)}, top})
		if p.Last > groups.Last {
			cut = appendPart(cut, part{Range{groups.Last + 1, p.Last}, p.Layers})
		}
	}
	return cut
}

// appendPart adds a part, or its key groups to the last one.
func appendPart(parts []part, p part) []part {
	if n := len(parts); n > 0 && int(parts[n-1].Last)+1 == int(p.First) && sameLayers(parts[n-1].Layers, p.Layers) {
		parts[n-1].Last = p.Last
		return parts
	}
	return append(parts, p)
}

func sameLayers(a, b []layer) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Space != b[i].Space || !a[i].History.equal(b[i].History) {
			return false
		}
	}
	return true
}

// renumber carries a state's numbers over to parts with other bounds and fewer layers.
func renumber(old []part, numbers [][]stateNumber, parts []part) [][]stateNumber {
	renumbered := make([][]stateNumber, len(parts))
	for i, p := range parts {
		for j := range old {
			if old[j].contains(p.First) {
				renumbered[i] = numbers[j][:len(p.Layers)]
			}
		}
	}
	return renumbered
}
