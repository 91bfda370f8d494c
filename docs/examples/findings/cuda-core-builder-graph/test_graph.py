from cuda.core import Device


def test_graph():
    device = Device()
    device.set_current()
    builder = device.create_graph_builder().begin_building()
    builder.end_building().complete().close()
    builder.close()
