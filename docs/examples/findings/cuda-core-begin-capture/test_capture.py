from cuda.core import Device


def test_capture():
    device = Device()
    device.set_current()
    builder = device.create_stream().create_graph_builder()
    builder.begin_building()
    builder.close()
