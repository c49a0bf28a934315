"""The declared tables: what a name means in one, it means in all."""

from collections import defaultdict

from schemas.tables import TABLES


def test_a_name_has_one_type_in_all_tables() -> None:
    """`WHERE lost` must not run on a table in which it is a count. Internal tables are no analyst's business."""
    types = defaultdict[str, dict[str, list[str]]](lambda: defaultdict(list))
    for table in TABLES:
        if not table.name.startswith("internal_"):
            for field in table.arrow:
                types[field.name][str(field.type)].append(table.name)
    assert {name: dict(found) for name, found in types.items() if len(found) > 1} == {}
